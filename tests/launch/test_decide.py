"""Every rule of design/launch.md ("Rules for deciding", "Ray, securely"), a row each.

A row: facts and the user's words -> what must stand in the environment and the arguments, what
must not, and of which kind the reason is.
"""

from __future__ import annotations

import pytest

from rig.errors import RigError
from rig.launch.decide.layout import NotEnoughCardsError

from .rules import ROWS
from .rules.row import NVLINK_2, PERMIT, Row, box, rig


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_rule(row: Row) -> None:
    made = row.decide()
    for name, value in row.env.items():
        assert made.environment.get(name) == value, name
    words = list(made.vllm_arguments)
    if row.args:
        start = words.index(row.args[0])
        assert tuple(words[start : start + len(row.args)]) == row.args
    for word in row.no_args:
        assert word not in words
    given = {(reason.kind, reason.subject) for reason in made.reasons if reason.why}
    for kind, subject in row.kinds:
        if kind.startswith("-"):
            assert (kind[1:], subject) not in given
        else:
            assert (kind, subject) in given


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_whatever_is_decided_has_a_reason(row: Row) -> None:
    made = row.decide()
    subjects = {reason.subject for reason in made.reasons if reason.why}
    assert set(made.environment) <= subjects
    assert {word for word in made.vllm_arguments if word.startswith("--")} <= subjects
    assert set(made.ray_arguments[1:]) <= subjects


def test_the_permit_names_exactly_the_cards_and_the_driver() -> None:
    row = next(row for row in ROWS if "permit of patch 0503" in row.rule)
    made = row.decide()
    assert list(made.files) == [made.environment[PERMIT]]
    permit = made.files[made.environment[PERMIT]]
    assert all(f'"GPU-{index}"' in permit for index in range(4))
    assert '"580.1"' in permit and '"custom"' in permit
    others = [row.decide().files for row in ROWS if "permit of patch 0503" not in row.rule]
    assert not any(others)


@pytest.mark.parametrize("shown", [None, "0,1", "0"])
def test_more_cards_than_there_are_is_refused_before_anything_starts(shown: str | None) -> None:
    inherited = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    with pytest.raises(NotEnoughCardsError, match="4 GPUs are needed"):
        Row("", box=box(3), inherited=inherited).decide()


def test_a_card_that_is_not_there_is_refused() -> None:
    with pytest.raises(RigError, match="no card 9"):
        Row("", rig=rig(1), box=box(2), inherited={"CUDA_VISIBLE_DEVICES": "9"}).decide()


def test_ranks_stand_on_the_cards_in_the_order_that_is_shown() -> None:
    made = Row("", **NVLINK_2).decide()
    assert made.layout.cards == (0, 2, 1, 3)
    assert made.layout.groups == ((0, 2), (1, 3))
    assert "--num-gpus=4" in made.ray_arguments
