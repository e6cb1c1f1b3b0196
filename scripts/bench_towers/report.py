"""The table on the terminal, and the same figures as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench_towers.figures import OK, SKIPPED, Cell, Row, TowerFigures

SCHEMA = 1


@dataclass
class Report:
    """Everything that a run found.

    Args:
        header: label -> what a reader must know of the machine.
        bus: as `machine.measure_bus` returns it.
        options: what was asked for.
        seconds: that the run took.
    """

    header: dict[str, str]
    bus: dict[str, Any]
    options: dict[str, Any]
    is_cuda: bool
    towers: list[TowerFigures]
    seconds: float

    def problems(self) -> list[str]:
        """What must not be: an output that differs, or a placement of ours that failed."""
        found = []
        for tower, row, cell in self._cells():
            where = f"{tower.name}, {row.title}, {cell.patches} patches"
            if cell.equal is False:
                found.append(f"{where}: the output differs from the resident tower's")
            if row.ours and cell.status.startswith("failed"):
                found.append(f"{where}: {cell.status}")
        return found

    def skipped(self) -> int:
        """Figures that the budget of time left no room for: encodes and waits."""
        return sum(
            cell.status.startswith("skipped") + (cell.wait_status or "").startswith("skipped")
            for _, _, cell in self._cells()
        )

    def _cells(self) -> Iterable[tuple[TowerFigures, Row, Cell]]:
        for tower in self.towers:
            for row in tower.rows:
                for cell in row.cells:
                    yield tower, row, cell

    def json(self) -> str:
        """All figures; what was not measured is null, and the status says why."""
        content = {
            "schema": SCHEMA,
            "times_mean_something": self.is_cuda,
            "header": self.header,
            "bus": self.bus,
            "options": self.options,
            "seconds": self.seconds,
            "problems": self.problems(),
            "skipped_for_time": self.skipped(),
            "towers": [asdict(tower) for tower in self.towers],
        }
        return json.dumps(content, indent=1) + "\n"

    def text(self) -> str:
        """The table."""
        lines = list(self._head())
        for tower in self.towers:
            lines += ["", *self._tower(tower)]
        lines += ["", *self._foot()]
        return "\n".join(lines) + "\n"

    def _head(self) -> Iterable[str]:
        if not self.is_cuda:
            yield "no GPU: times mean nothing, this shows that it works end to end"
        bus = self.bus
        exact = "exact" if bus["exact"] else "rounded up by the allocator"
        memory = f"{'pinned' if bus['pinned'] else 'pageable'}, {exact}"
        if self.is_cuda and bus["reason"]:
            memory += f" ({bus['reason']})"
        rate = f"{bus['h2d_gb_per_s']:.1f} GB/s"
        facts = self.header | {
            "link": str(bus["link"]),
            "host memory": memory,
            "copy rate": f"{rate} host to device" if self.is_cuda else f"{rate}, host to host",
            "weights": str(self.options["dtype"]) + (", tiny" if self.options["tiny"] else ""),
        }
        width = max(len(label) for label in facts)
        yield from (f"{label:<{width}}  {value}" for label, value in facts.items())

    def _tower(self, tower: TowerFigures) -> Iterable[str]:
        if not tower.weight_bytes:
            yield f"{tower.name}: {tower.rows[0].status}"
            return
        copies = tower.streamable_bytes / self.bus["h2d_gb_per_s"] / 1e6
        yield (
            f"{tower.name}: {_mib(tower.weight_bytes)} MiB, of which {tower.units} units "
            f"of {_mib(tower.streamable_bytes)} MiB can stream, the largest "
            f"{_mib(tower.largest_unit_bytes)} MiB; at the rate above their copies take "
            f"{copies:.1f} ms"
        )
        counts = [cell.patches for cell in tower.rows[0].cells]
        resident = {c.patches: c.ms for r in tower.rows if r.key == "resident" for c in r.cells}
        yield "encode in ms by patches (times resident):"
        head = ["", *(str(count) for count in counts), "equal"]
        body = [
            [row.title, *(_time(c, resident.get(c.patches)) for c in row.cells), _equal(row)]
            for row in tower.rows
        ]
        yield from table([head, *body])
        peak_at = _common_count(tower.rows)
        yield "memory in MiB, and how long compute waits for copies in ms by patches:"
        peak = f"peak at {peak_at}" if peak_at else "peak"
        head = ["", "rest", peak, "host", "copied", *(f"wait {count}" for count in counts)]
        body = [
            [
                row.title,
                _mib(row.rest_bytes),
                _mib(next((c.peak_bytes for c in row.cells if c.patches == peak_at), None)),
                _mib(row.host_bytes),
                _mib(row.copied_bytes),
                *(_wait(cell) for cell in row.cells),
            ]
            for row in tower.rows
        ]
        yield from table([head, *body])
        for row in tower.rows:
            yield from _remarks(row)

    def _foot(self) -> Iterable[str]:
        yield (
            f"took {self.seconds:.0f} s of {self.options['budget_seconds']:g} s; "
            f"{self.skipped()} figures skipped for time"
        )
        if not self.is_cuda:
            yield "no GPU: rest is counted, not measured; peak is not known"
        yield from (f"PROBLEM: {problem}" for problem in self.problems())


def table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Lines of a table: the first column to the left, all others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *rest = (
            f"{text:<{width}}" if column == 0 else f"{text:>{width}}"
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join([first, *rest]).rstrip()


def _time(cell: Cell, resident: float | None) -> str:
    if cell.ms is None:
        # The whole reason stands below the table.
        return {"s": "skipped: time", "d": "does not fit", "f": "failed"}.get(cell.status[0], "-")
    ratio = f" ({cell.ms / resident:.2f})" if resident else ""
    return f"{cell.ms:.2f}{ratio}"


def _wait(cell: Cell) -> str:
    return f"{cell.wait_ms:.2f}" if cell.wait_ms is not None else cell.wait_status or "-"


def _equal(row: Row) -> str:
    known = [cell.equal for cell in row.cells if cell.status == OK]
    if not known:
        return "-"
    if False in known:
        return "NO"
    return "yes" if all(known) else "not compared"


def _remarks(row: Row) -> Iterable[str]:
    if row.note:
        yield f"  {row.title}: {row.note}"
    if row.status not in (OK, SKIPPED):
        yield f"  {row.title}: {row.status}"
        return
    by_status: dict[str, list[str]] = {}
    for cell in row.cells:
        if cell.status not in (OK, SKIPPED):
            by_status.setdefault(cell.status, []).append(str(cell.patches))
    for status, counts in by_status.items():
        yield f"  {row.title}, {', '.join(counts)} patches: {status}"


def _common_count(rows: Iterable[Row]) -> int | None:
    """The most patches at which every row that was measured at all has a peak."""
    common: set[int] | None = None
    for row in rows:
        known = {cell.patches for cell in row.cells if cell.peak_bytes is not None}
        if known:
            common = known if common is None else common & known
    return max(common, default=None) if common else None


def _mib(count: float | None) -> str:
    if count is None or math.isnan(count):
        return "-"
    if count == 0:
        return "0"
    mib = count / 2**20
    return f"{mib:.0f}" if mib >= 10 else f"{mib:.2f}"
