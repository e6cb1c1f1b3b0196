"""Waiting for the memory of processes that have ended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rig.box.facts import Box, Card, CardProcess
from rig.launch import supervise_drain
from rig.launch.supervise_drain import undrained, wait_for_drained

GIB = 1 << 30


def card(
    used_gib: float | None,
    held_gib: Sequence[float | None] | None = (),
    *,
    display: bool | None = False,
    index: int = 0,
) -> Card:
    free = None if used_gib is None else int((24 - used_gib) * GIB)
    processes = None
    if held_gib is not None:
        processes = tuple(
            CardProcess(pid=pid, memory_bytes=None if held is None else int(held * GIB))
            for pid, held in enumerate(held_gib, start=100)
        )
    return Card(
        index=index,
        bus_id=f"0000:0{index + 1}:00.0",
        memory_bytes=24 * GIB,
        memory_free_bytes=free,
        display_active=display,
        processes=processes,
    )


def box(*cards: Card) -> Box:
    return Box(source="test", cards=cards)


@pytest.mark.parametrize(
    "seen, gib",
    [
        (card(0.5), None),  # what the driver holds
        (card(20.0), 20.0),  # nobody's
        (card(20.0, [19.5]), None),  # somebody's
        (card(20.0, [4.0, 4.0]), 12.0),  # partly
        (card(1.6, display=True), None),  # frames
        (card(1.6, display=False), 1.6),
        (card(1.6, display=None), None),  # perhaps frames
        (card(None), None),  # unknown is not waited for
        (card(20.0, None), None),
        (card(20.0, [None]), None),
    ],
)
def test_what_counts_as_not_drained(seen: Card, gib: float | None) -> None:
    found = [one.unheld_bytes / GIB for one in undrained(box(seen))]
    assert found == ([] if gib is None else [pytest.approx(gib)])


def test_a_box_without_a_driver_has_nothing_to_wait_for() -> None:
    assert undrained(Box(source="test", cards=None)) == []


def test_waiting_ends_when_the_memory_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise_drain, "_POLL_S", 0.01)
    seen = iter([box(card(20.0), card(8.0, index=1)), box(card(5.0)), box(card(0.3))])
    told: list[str] = []
    assert wait_for_drained(lambda: next(seen), told.append) == []
    assert "card 0: 20.0 GiB, card 1: 8.0 GiB" in told[0]
    assert "card 0: 5.0 GiB" in told[1]
    assert "has drained after" in told[2]


def test_nothing_is_said_when_there_is_nothing_to_wait_for() -> None:
    told: list[str] = []
    assert wait_for_drained(lambda: box(card(0.3)), told.append) == []
    assert told == []


def test_waiting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise_drain, "_POLL_S", 0.01)
    (warning,) = wait_for_drained(lambda: box(card(20.0)), lambda _: None, timeout_s=0.05)
    assert warning.startswith("card 0: 20.0 GiB in use after 0 s though no process holds it")
