"""Which checks are planned for which box, in which order, and why some are not made."""

from __future__ import annotations

import pytest

from rig.box.facts import Box, Host
from rig.p2p.cases import (
    MIB,
    WAYS,
    Case,
    groups_of,
    guessed_seconds,
    nccl_p2p_level,
    plan_cases,
)
from rig.p2p.verdict import Way

from .conftest import a_box


def named(cases: list[Case], way: str) -> dict[tuple[int, ...], Case]:
    return {case.cards: case for case in cases if case.way == way}


def test_two_cards_get_every_way() -> None:
    cases = plan_cases(a_box(2))
    assert [(c.way, c.cards) for c in cases] == [
        ("nccl-no-p2p", (0, 1)),
        ("copy", (0, 1)),
        ("copy", (1, 0)),
        ("copy-both-ways", (0, 1)),
        ("nccl-p2p", (0, 1)),
        ("custom", (0, 1)),
        ("pcie-ipc", (0, 1)),
    ]
    assert not any(c.skip for c in cases)
    assert [c.needed for c in cases] == [True] + 6 * [False]


def test_four_cards_get_each_ordered_pair_and_each_group() -> None:
    cases = plan_cases(a_box(4))
    assert len(named(cases, "copy")) == 12
    assert len(named(cases, "copy-both-ways")) == 6
    pairs = {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert set(named(cases, "nccl-p2p")) == pairs | {(0, 1, 2, 3)}
    assert list(named(cases, "nccl-no-p2p")) == [(0, 1, 2, 3)]


def test_sizes_go_from_4_kib_to_256_mib_and_fit_the_way() -> None:
    for case in plan_cases(a_box(2)):
        assert list(case.sizes) == sorted(case.sizes)
        assert all(size % 16 == 0 for size in case.sizes)
        if case.way.startswith(("copy", "nccl")):
            assert (case.sizes[0], case.sizes[-1]) == (4096, 256 * MIB)
        if case.way == "custom":
            assert case.sizes[-1] < 8 * MIB
        if case.way == "pcie-ipc":
            assert all(size % 8192 == 0 for size in case.sizes)


def test_the_harmless_comes_first() -> None:
    ways = [case.way for case in plan_cases(a_box(4, nvlinks=[(0, 2), (1, 3)]))]
    assert ways == sorted(ways, key=WAYS.index)
    assert ways[0] == "nccl-no-p2p"


def test_groups_are_nvlink_pairs_blocks_and_all() -> None:
    assert groups_of(a_box(8, nvlinks=[(0, 5)])) == [
        *((0, 1), (0, 5), (2, 3), (4, 5), (6, 7)),
        *((0, 1, 2, 3), (4, 5, 6, 7)),
        (0, 1, 2, 3, 4, 5, 6, 7),
    ]
    assert groups_of(a_box(3)) == [(0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert groups_of(a_box(4), quick=True) == [(0, 1), (2, 3), (0, 1, 2, 3)]
    assert groups_of(a_box(6))[-1] == (0, 1, 2, 3, 4, 5)


def test_never_across_generations() -> None:
    box = a_box(3, capabilities=[(8, 6), (8, 6), (8, 9)])
    cases = plan_cases(box)
    for case in cases:
        crosses = 2 in case.cards and case.way != "nccl-no-p2p"
        assert bool(case.skip) is crosses, case
        if crosses and len(case.cards) == 2:
            assert "generations" in case.skip and "8.9" in case.skip and "8.6" in case.skip


def test_an_unknown_generation_is_no_pass() -> None:
    cases = plan_cases(a_box(2, capabilities=[(8, 6), None]))
    assert all("generation of card 1 is not known" in c.skip for c in cases[1:])
    assert not cases[0].skip


def test_what_the_driver_refuses_is_not_run() -> None:
    cases = plan_cases(a_box(2, p2p="refused"))
    assert [bool(c.skip) for c in cases] == [False] + 6 * [True]
    assert cases[1].skip == "the driver refuses P2P between 0 and 1 (GNS)"


def test_an_unknown_grant_is_tried() -> None:
    assert not any(c.skip for c in plan_cases(a_box(2, p2p=None)))


@pytest.mark.parametrize(
    ("count", "custom", "pcie_ipc"), [(2, True, True), (3, False, False), (6, True, False)]
)
def test_ways_with_few_world_sizes(count: int, custom: bool, pcie_ipc: bool) -> None:
    cases = plan_cases(a_box(count))
    every = tuple(range(count))
    assert bool(named(cases, "custom")[every].skip) is not custom
    assert bool(named(cases, "pcie-ipc")[every].skip) is not pcie_ipc


def test_the_opt_in_of_custom_needs_uuids_and_the_driver() -> None:
    over = (0, 1, 2, 3)
    assert (
        "UUID of card 0, 1, 2, 3" in named(plan_cases(a_box(4, uuids=False)), "custom")[over].skip
    )
    no_driver = a_box(4, host=Host())
    assert "driver's version" in named(plan_cases(no_driver), "custom")[over].skip
    assert not named(plan_cases(a_box(4, uuids=False)), "custom")[(0, 1)].skip


@pytest.mark.parametrize(
    ("box", "level"),
    [
        (a_box(2, level="PHB"), "PHB"),
        (a_box(2, level="PIX"), "PHB"),
        (a_box(2, level="NODE"), "SYS"),
        (a_box(2, level="SYS"), "SYS"),
        (a_box(2, level=None), "SYS"),
        (a_box(2, nvlinks=[(0, 1)]), "PHB"),
        (a_box(2).model_copy(update={"pairs": None}), "SYS"),
    ],
)
def test_the_level_lets_all_cards_reach_each_other(box: Box, level: str) -> None:
    assert nccl_p2p_level(box, (0, 1)) == level
    assert named(plan_cases(box), "nccl-p2p")[(0, 1)].level == level


def test_only_and_quick() -> None:
    wanted: tuple[Way, ...] = ("nccl-p2p",)
    only = plan_cases(a_box(4), only=wanted)
    assert {case.way for case in only} == {"nccl-p2p"}
    quick, full = plan_cases(a_box(4), quick=True), plan_cases(a_box(4))
    assert guessed_seconds(quick) < guessed_seconds(full)
    assert all(len(case.sizes) == 2 for case in quick)


def test_no_cards_no_cases() -> None:
    assert plan_cases(Box(source="a test")) == []
    assert plan_cases(a_box(1)) == []


def test_what_is_skipped_costs_no_time() -> None:
    assert guessed_seconds(plan_cases(a_box(2, p2p="refused"))) < guessed_seconds(
        plan_cases(a_box(2))
    )
