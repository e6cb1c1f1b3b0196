"""`rig doctor --after`: what a running or ended engine says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rig.doctor.show import plain

if TYPE_CHECKING:
    from rig.engine_log import EngineFacts


def read_after(where: str) -> EngineFacts:
    """The engine's own words, from a log file or a server's address (http:// or https://).

    Raises:
        RigError: the file cannot be read, or nobody answers at the address.
    """
    from rig.engine_log import read_engine_log_file, read_server

    if where.startswith(("http://", "https://")):
        return read_server(where)
    return read_engine_log_file(Path(where))


def lines_after(facts: EngineFacts) -> list[str]:
    """One line per row: what, how it is."""
    from rig.engine_log import rows

    found = rows(facts)
    width = max(len(name) for name, _ in found)
    return [plain(f"{name:<{width}}  {value}") for name, value in found]


def json_after(facts: EngineFacts) -> str:
    """The facts and the rows as one JSON object."""
    from rig.engine_log import rows

    said = {"facts": facts.model_dump(mode="json"), "rows": [list(row) for row in rows(facts)]}
    return json.dumps(said, indent=1)


def status_after(facts: EngineFacts) -> int:
    """1 when the engine named a failure that certainly ended it, or a feature that does nothing."""
    failed = facts.failure is not None and facts.failure.certain
    return int(failed or bool(facts.no_ops))
