# mypy: disable-error-code="import-not-found"
"""Measures one tower in all placements, within a budget of time."""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bench_towers.figures import OK, SKIPPED, Cell, Row, TowerFigures
from bench_towers.machine import Machine
from bench_towers.placed import NotMeasured, Placed, Setting, nbytes, streamable
from bench_towers.placements import RESIDENT, Placement
from bench_towers.towers import Recipe, build_tower, grid

TOO_LARGE = "does not fit: out of device memory"
_LEARNING_ENCODES = 4
"""After so many the streamer predicts the order of any tower."""
_WAIT_ENCODES = 3
_GENEROSITY = 3
"""A placement may take so many times its equal share of the time left: few are as slow as UVA."""


def same_bits(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Whether two encodes returned the same, bit for bit: a NaN equals itself."""
    return len(left) == len(right) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        for a, b in zip(left, right, strict=True)
    )


class TowerBench:
    """Measures one tower.

    Args:
        machine: where.
        setting: how placements are made.
        patches: sizes of the pictures, ascending.
        repeats: encodes of which the median counts, where time allows.
    """

    def __init__(
        self,
        machine: Machine,
        setting: Setting,
        dtype: torch.dtype,
        patches: Sequence[int],
        repeats: int,
    ) -> None:
        self._machine = machine
        self._setting = setting
        self._dtype = dtype
        self._patches = patches
        self._repeats = repeats
        self._reference: dict[int, list[torch.Tensor]] = {}
        self._resident: dict[int, Cell] = {}

    def run(
        self, name: str, recipe: Recipe, placements: Sequence[Placement], deadline: float
    ) -> TowerFigures:
        """Measure until a time of `time.monotonic`; what is not reached says so."""
        figures = TowerFigures(name)
        figures.rows = [self._empty_row(placement) for placement in placements]
        if time.monotonic() >= deadline:
            return figures
        try:
            self._measure(figures, recipe, placements, deadline)
        except Exception as error:
            # The device is out of order. What was found before is worth more than a traceback.
            for row in figures.rows:
                if row.status == SKIPPED:
                    _fail(row, error)
        return figures

    def _measure(
        self,
        figures: TowerFigures,
        recipe: Recipe,
        placements: Sequence[Placement],
        deadline: float,
    ) -> None:
        device = self._machine.device
        tower = build_tower(recipe, device, self._dtype)
        sizes = [nbytes(own.values()) for _, own in streamable(tower, self._setting.files)]
        figures.weight_bytes = nbytes(tower.parameters())
        figures.streamable_bytes = sum(sizes)
        figures.largest_unit_bytes, figures.units = max(sizes), len(sizes)
        torch.manual_seed(1)
        pictures = {n: recipe.inputs(tower, *grid(n), device, self._dtype) for n in self._patches}
        self._warm_up(tower, pictures)
        for index, placement in enumerate(placements):
            now = time.monotonic()
            share = max(deadline - now, 0) / (len(placements) - index) * _GENEROSITY
            # Without the resident figures all others would say nothing.
            until = deadline if placement is RESIDENT else min(deadline, now + share)
            print(f"measuring {figures.name}: {placement.title}", file=sys.stderr, flush=True)
            figures.rows[index] = self._row(placement, tower, pictures, until)
            self._machine.tidy()

    def _empty_row(self, placement: Placement) -> Row:
        row = Row(placement.key, placement.title, placement.ours)
        row.cells = [Cell(patches) for patches in self._patches]
        return row

    def _warm_up(self, tower: Any, pictures: dict[int, dict[str, Any]]) -> None:
        # Libraries take workspaces on their first call: they are no placement's own.
        if self._machine.is_cuda:
            placed = RESIDENT.place(copy.deepcopy(tower), self._setting)
            placed.encode(pictures[self._patches[0]])
        self._machine.tidy()

    def _row(
        self, placement: Placement, tower: Any, pictures: dict[int, dict[str, Any]], until: float
    ) -> Row:
        row = self._empty_row(placement)
        if time.monotonic() >= until:
            return row
        before = self._machine.allocated()
        try:
            placed = placement.place(copy.deepcopy(tower), self._setting)
        except Exception as error:
            _fail(row, error)
            return row
        row.status, row.note, row.copied_bytes = OK, placed.note, placed.copied_bytes
        row.counted_bytes = row.rest_bytes = placed.device_bytes
        row.host_bytes = placed.host.nbytes
        row.pinned, row.exact = placed.host.pinned, placed.host.exact
        self._cells(placement, row, placed, pictures, until, before or 0)
        rest = self._machine.allocated()
        if rest is not None:
            row.rest_bytes, row.rest_is_measured = rest - (before or 0), True
        placed.stop()
        del placed
        if placement.streams:
            self._machine.tidy()
            self._waits(placement, row, tower, pictures, until)
        return row

    def _cells(
        self,
        placement: Placement,
        row: Row,
        placed: Placed,
        pictures: dict[int, dict[str, Any]],
        until: float,
        before: int,
    ) -> None:
        previous: Cell | None = None
        for index, patches in enumerate(self._patches):
            cell = row.cells[index]
            if time.monotonic() + 2 * self._expected(patches, previous) > until:
                continue
            fair = max(until - time.monotonic(), 0) / (len(row.cells) - index)
            try:
                if index == 0 and placement.streams:
                    for _ in range(_LEARNING_ENCODES - 1):
                        self._one(placed, pictures[patches])
                self._cell(placement, cell, placed, pictures[patches], fair, before)
            except Exception as error:
                cell.status = _why(error)
                self._machine.tidy()
            previous = cell if cell.status == OK else previous

    def _expected(self, patches: int, previous: Cell | None) -> float:
        """Seconds that an encode is likely to take at least, from what is known so far."""
        known = self._resident.get(patches)
        resident = known.ms if known and known.ms else 0.0
        grown = previous.ms * patches / previous.patches if previous and previous.ms else 0.0
        return max(resident, grown) / 1e3

    def _one(self, placed: Placed, inputs: dict[str, Any]) -> tuple[float, list[torch.Tensor]]:
        placed.before_encode()
        # The models take known arguments out of a dict of their own: this one stays whole.
        return self._machine.timed(lambda: placed.encode(inputs))

    def _cell(
        self,
        placement: Placement,
        cell: Cell,
        placed: Placed,
        inputs: dict[str, Any],
        fair: float,
        before: int,
    ) -> None:
        self._machine.forget_peak()
        began = time.monotonic()
        _, output = self._one(placed, inputs)
        peak = self._machine.peak()
        cell.peak_bytes = None if peak is None else peak - before
        output = [tensor.cpu() for tensor in output]
        took = time.monotonic() - began
        if placement.key == RESIDENT.key:
            self._reference[cell.patches] = output
        repeats = self._repeats if took == 0 else int(fair / 2 / took)
        times = []
        for _ in range(max(1, min(self._repeats, repeats))):
            seconds, last = self._one(placed, inputs)
            times.append(1e3 * seconds)
        reference = self._reference.get(cell.patches)
        if reference is not None:
            # The first encode and the last: a slot that goes stale shows in later ones.
            cell.equal = same_bits(output, reference) and same_bits(
                [tensor.cpu() for tensor in last], reference
            )
        cell.ms, cell.least_ms, cell.most_ms = statistics.median(times), min(times), max(times)
        cell.encodes, cell.status = len(times), OK
        if placement.key == RESIDENT.key:
            self._resident[cell.patches] = cell

    def _waits(
        self,
        placement: Placement,
        row: Row,
        tower: Any,
        pictures: dict[int, dict[str, Any]],
        until: float,
    ) -> None:
        """Measure the waits apart: the events that this takes would lengthen the encodes."""
        measured = [cell for cell in row.cells if cell.status == OK]
        for cell in measured:
            cell.wait_status = SKIPPED
        if not measured or time.monotonic() >= until:
            return
        placed = placement.place(copy.deepcopy(tower), replace(self._setting, timed=True))
        for cell in measured:
            learning = _LEARNING_ENCODES if cell is measured[0] else 1
            expected = (learning + _WAIT_ENCODES) * (cell.ms or 0) / 1e3
            if time.monotonic() + expected > until:
                break
            for _ in range(learning):
                self._one(placed, pictures[cell.patches])
            self._machine.synchronize()
            start = placed.waited()
            for _ in range(_WAIT_ENCODES):
                self._one(placed, pictures[cell.patches])
            self._machine.synchronize()
            end = placed.waited()
            if start is not None and end is not None:
                cell.wait_ms, cell.wait_status = 1e3 * (end - start) / _WAIT_ENCODES, OK
        placed.stop()


def _fail(row: Row, error: Exception) -> None:
    row.status = _why(error)
    row.cells = [Cell(cell.patches, row.status) for cell in row.cells]


def _why(error: Exception) -> str:
    if isinstance(error, NotMeasured):
        return f"not measured: {error}"
    if isinstance(error, torch.OutOfMemoryError):
        return TOO_LARGE
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"failed: {type(error).__name__}: {first}"
