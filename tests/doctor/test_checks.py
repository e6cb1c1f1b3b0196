"""Each check in each of its states, and the rules that hold for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from rig.box.facts import Box
from rig.doctor.finding import LABELS, State
from rig.doctor.table import CHECKS
from rig.doctor.wheel_cuda import CUDA_OF_TORCH
from rig.layout import layout_of_this_checkout
from rig.pins import read_pins
from tests.doctor import cases_cards, cases_host, cases_links, cases_p2p
from tests.doctor.kit import (
    BARE,
    GIB,
    NO_CARDS,
    NO_DRIVER,
    Case,
    box,
    card,
    context,
    process,
    rig,
    spoilt,
)

BY_NAME = {check.name: check for check in CHECKS}
CASES = [*cases_cards.CASES, *cases_links.CASES, *cases_p2p.CASES, *cases_host.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.check}-{c.state}-{c.says[:20]}")
def test_state(case: Case) -> None:
    check = BY_NAME[case.check]
    found = check.run(case.box, case.rig, case.context)
    assert found.state == case.state, found
    assert case.says in f"{found.seen} {found.next_step}", found
    assert (found.next_step == "") == (found.state == "pass")
    assert found.seen


def test_every_check_is_shown_in_each_of_its_states() -> None:
    """The table of checks tells all states that a check has, and a case shows each of them."""
    shown: dict[str, set[State]] = {check.name: set() for check in CHECKS}
    for case in CASES:
        shown[case.check].add(case.state)
    assert shown == {check.name: set(check.states) for check in CHECKS}


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.name)
def test_whys_are_one_sentence_and_looks_are_commands(check: Any) -> None:
    assert (check.why[0].isupper() or check.why.startswith("vLLM")) and check.why.endswith(".")
    assert ". " not in check.why
    assert "`" in check.look


@pytest.mark.parametrize("check", [c for c in CHECKS if c.needs_cards], ids=lambda c: c.name)
@pytest.mark.parametrize("nothing", [NO_CARDS, NO_DRIVER], ids=["no-card", "no-driver"])
def test_no_check_of_cards_passes_where_there_is_none(check: Any, nothing: Box) -> None:
    if check.name in ("driver-cuda", "driver-branch") and nothing is NO_CARDS:
        return  # a driver that shows no card can still be the right one
    assert check.run(nothing, rig(), context()).state != "pass"


def test_the_next_step_is_for_every_card_that_needs_it() -> None:
    """Not for the first one alone: what is typed must mend all."""
    check = BY_NAME["power-cap"]
    both = check.run(box(card(0, power_limit_w=390), card(1, power_limit_w=390)), None, BARE)
    assert both.next_step == "`sudo nvidia-smi -i 0,1 -pl 350`"
    one = check.run(spoilt(power_limit_w=390), None, BARE)
    assert one.next_step == "`sudo nvidia-smi -i 1 -pl 350`"
    two = (process(7, 4 * GIB),), (process(9, 4 * GIB),)
    busy = BY_NAME["cards-idle"].run(
        box(card(0, processes=two[0]), card(1, processes=two[1])), None, context()
    )
    assert "-p 7`" in busy.next_step and "-p 9`" in busy.next_step


def test_no_advice_names_a_pin_that_would_not_help() -> None:
    """All pins ask for one major CUDA, so an older one is no way around an old driver."""
    majors = {CUDA_OF_TORCH[pin.torch][0] for pin in read_pins(layout_of_this_checkout())}
    said = BY_NAME["driver-cuda"].run(box(driver_cuda=(12, 4)), None, context())
    assert ("rig pins" in said.next_step) == (len(majors) > 1)


def test_no_label_is_left_in_a_text() -> None:
    for case in CASES:
        found = BY_NAME[case.check].run(case.box, case.rig, case.context)
        assert LABELS not in found.next_step + found.seen
