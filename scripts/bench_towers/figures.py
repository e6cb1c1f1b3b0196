"""What is found: a cell for each number of patches, a row for each placement, a table per tower."""

from __future__ import annotations

from dataclasses import dataclass, field

OK = "ok"
SKIPPED = "skipped: time"


@dataclass
class Cell:
    """One placement at one number of patches; None where it was not measured.

    Args:
        status: `ok`, or why there is no figure.
        ms: median of the encode times; `least` and `most` of `encodes` of them.
        wait_ms: how long compute waits for copies in an encode; `wait_status` is `ok`, why there
            is no figure, or None for a placement that does not stream.
        peak_bytes: most device memory in an encode, beyond what is there without the tower.
        equal: the output is that of `resident`, bit for bit.
    """

    patches: int
    status: str = SKIPPED
    ms: float | None = None
    least_ms: float | None = None
    most_ms: float | None = None
    encodes: int = 0
    wait_ms: float | None = None
    wait_status: str | None = None
    peak_bytes: int | None = None
    equal: bool | None = None


@dataclass
class Row:
    """One placement of one tower.

    Args:
        rest_bytes: device memory between encodes: measured where `rest_is_measured`, else counted.
    """

    key: str
    title: str
    ours: bool
    status: str = SKIPPED
    note: str = ""
    rest_bytes: int | None = None
    rest_is_measured: bool = False
    counted_bytes: int | None = None
    host_bytes: int | None = None
    pinned: bool | None = None
    exact: bool | None = None
    copied_bytes: int | None = None
    cells: list[Cell] = field(default_factory=list)


@dataclass
class TowerFigures:
    """What was found of one tower."""

    name: str
    weight_bytes: int = 0
    streamable_bytes: int = 0
    largest_unit_bytes: int = 0
    units: int = 0
    rows: list[Row] = field(default_factory=list)
