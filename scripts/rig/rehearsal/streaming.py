"""What a server says of its tower streaming: the proof that weights rested on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.launch.logs import spoken

_MARK = "Tower streaming: "
# "visual: 7 units, 2.3 MiB streamed per encode; 0 units, 0.0 MiB resident; ring of ..."
_TOWER = re.compile(
    r"(?P<name>[^:]+): (?P<units>[1-9]\d*) units, (?P<mib>\d+\.\d+) MiB streamed per encode;"
)


@dataclass(frozen=True)
class StreamedTower:
    """One tower, as its server's log tells of it.

    Args:
        name: the attribute of the model that holds it, e.g. `visual`; several, with commas, when
            they share a ring.
        units: how many of its parts are copied to the device one by one.
        mib: what they hold together, on one rank.
        line: all that this line of the log says.
    """

    name: str
    units: int
    mib: float
    line: str


def streaming_lines(log: Path) -> tuple[str, ...]:
    """What an engine's log says of tower streaming, without the mark: each line once, in order.

    Every rank may say the same, so a repeat tells nothing.

    Raises:
        RigError: the log cannot be read.
    """
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        raise RigError(f"the engine's log cannot be read: {error.strerror}", where=log) from error
    said = (spoken(line) for line in text.splitlines())
    return tuple(dict.fromkeys(line.removeprefix(_MARK) for line in said if line.startswith(_MARK)))


def streamed_towers(lines: Sequence[str]) -> tuple[StreamedTower, ...]:
    """The towers that are said to stream, each with at least one unit and some bytes."""
    found = ((line, _TOWER.match(line)) for line in lines)
    return tuple(
        StreamedTower(match["name"], int(match["units"]), float(match["mib"]), line)
        for line, match in found
        if match and float(match["mib"]) > 0
    )


def check_streaming(log: Path, *, wanted: bool) -> tuple[StreamedTower, ...]:
    """A server that was asked to stream says that it does, and one that was not says nothing.

    Args:
        log: the engine's log.

    Returns:
        The towers that stream; none when none should.

    Raises:
        RigError: it is not so.
    """
    lines = streaming_lines(log)
    towers = streamed_towers(lines)
    if wanted and not towers:
        raise RigError(
            "the server was to stream its tower, and its log names none that streams",
            where=log,
            detail="\n".join(lines),
        )
    if not wanted and lines:
        raise RigError(
            "the server speaks of tower streaming, and was not asked to stream",
            where=log,
            detail="\n".join(lines),
        )
    return towers
