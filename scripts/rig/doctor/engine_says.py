"""`rig doctor --after`: what a running or ended engine says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rig.doctor.show import plain
from rig.errors import RigError

if TYPE_CHECKING:
    from rig.engine_log import EngineFacts


def read_after(where: str) -> EngineFacts:
    """The engine's own words, from a log file or a server's address (http:// or https://).

    Raises:
        RigError: the file cannot be read or is no engine's log, or nobody answers at the address.
    """
    from rig.engine_log import EngineFacts, read_engine_log_file, read_server

    if where.startswith(("http://", "https://")):
        return read_server(where)
    facts = read_engine_log_file(Path(where))
    if facts.model_copy(update={"source": ""}) == EngineFacts() and not _speaks(Path(where)):
        raise RigError(
            "no line of this file is one of an engine's log",
            where=where,
            next_step="name the engine.log of a run: `serve` says where it lies",
        )
    return facts


def _speaks(log: Path) -> bool:
    """Whether any line has the form of a log's, with a level."""
    from rig.engine_log.lines import parse_line

    with log.open(errors="replace") as file:
        return any(parse_line(line).level for line in file)


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
