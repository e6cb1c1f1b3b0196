"""What the engine itself says, in its log and at its addresses: the proof behind each feature.

facts = read_engine_log_file(Path("engine.log"))       # or read_engine_log(lines)
rows(facts)                                            # [("all-reduce", "..."), ...]
known_failure(Path("engine.log").read_text().splitlines())  # (cause, next step) or None
read_server("http://127.0.0.1:8000")                   # the little that a running server tells
"""

from __future__ import annotations

from rig.engine_log.facts import EngineFacts, Failure, NoOp
from rig.engine_log.failures import find_failure, known_failure
from rig.engine_log.read import read_engine_log, read_engine_log_file
from rig.engine_log.rows import rows
from rig.engine_log.server import read_server

__all__ = [
    "EngineFacts",
    "Failure",
    "NoOp",
    "find_failure",
    "known_failure",
    "read_engine_log",
    "read_engine_log_file",
    "read_server",
    "rows",
]
