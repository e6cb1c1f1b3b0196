"""The gate of serve: what stops a start, what is said, what is passed over."""

from __future__ import annotations

from rig.doctor.gate import GATE, gate
from rig.doctor.table import CHECKS
from tests.doctor.kit import GIB, NO_CARDS, NO_DRIVER, box, card, context, process, rig, with_


def test_a_good_box_passes_in_silence() -> None:
    assert gate(box(), rig(), context()) == []


def test_every_name_of_the_gate_is_a_check() -> None:
    assert set(GATE) <= {check.name for check in CHECKS}
    assert all(why.startswith(("hopeless", "unsafe", "warns")) for why in GATE.values())


def test_failures_come_first_and_warnings_after() -> None:
    busy = box(card(0, processes=(process(9, 8 * GIB),)), card(1, name="NVIDIA RTX A5000"))
    found = gate(with_(busy, host=box(memlock_bytes=8 << 20).host), rig(), context())
    assert [(f.check, f.state) for f in found] == [
        ("cards-idle", "fail"),
        ("cards-alike", "warn"),
        ("memlock", "warn"),
    ]


def test_unknown_facts_do_not_stop_a_start() -> None:
    blind = box(
        container=None,
        memory_available_bytes=None,
        cgroup_limit_bytes=None,
        shm_free_bytes=None,
        wsl=None,
    )
    assert gate(blind, rig(), context(pinned_bytes=None)) == []


def test_no_driver_stops_a_start_that_needs_cards() -> None:
    stops = [f.check for f in gate(NO_DRIVER, rig(), context()) if f.state == "fail"]
    assert stops == ["cards-seen"]
    stops = [f.check for f in gate(NO_CARDS, rig(), context()) if f.state == "fail"]
    assert stops == ["cards-seen", "cards-enough"]


def test_a_rehearsal_is_not_asked_for_cards_but_for_memory() -> None:
    tight = with_(NO_DRIVER, host=box(shm_bytes=64 << 20, shm_free_bytes=64 << 20).host)
    found = gate(tight, rig(), context(cards_wanted=0, wheel=None))
    assert [(f.check, f.state) for f in found] == [("shm", "fail")]


def test_what_serve_keeps_off_by_itself_does_not_stop_it() -> None:
    """An IOMMU that translates breaks P2P, which serve does not use unless it was proven."""
    assert gate(box(iommu="translated"), rig(), context(verdict=None)) == []
