"""The judgement of a served answer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rig.rehearsal.compare import LOGPROB_TOLERANCE, compare
from rig.rehearsal.exchange import Answer

ORACLE = Answer((5, 6, 7), (-0.5, -1.0, -0.25), "abc", (1, 2, 2, 3), margin=0.3)


def test_an_equal_answer_is_equal() -> None:
    found = compare(replace(ORACLE, margin=None), ORACLE)
    assert found.equal
    assert (found.tokens, found.largest_difference) == (3, 0.0)


def test_a_difference_within_the_tolerance_is_equal_and_reported() -> None:
    found = compare(replace(ORACLE, logprobs=(-0.5, -1.0005, -0.25)), ORACLE)
    assert found.equal
    assert found.largest_difference == pytest.approx(5e-4)


def test_a_logprob_further_away_is_named_by_its_position() -> None:
    found = compare(replace(ORACLE, logprobs=(-0.5, -1.0, -0.2)), ORACLE)
    assert found.difference is not None
    assert "token 2 has logprob -0.200000" in found.difference
    assert found.largest_difference == pytest.approx(0.05)


def test_the_first_differing_token_is_named() -> None:
    found = compare(replace(ORACLE, token_ids=(5, 9, 8)), ORACLE)
    assert found.difference is not None
    assert "token 1 is 9" in found.difference
    assert "the oracle's is 6" in found.difference


def test_tokens_after_the_first_difference_do_not_count() -> None:
    found = compare(replace(ORACLE, token_ids=(5, 9, 7), logprobs=(-0.5, -9.0, -9.0)), ORACLE)
    assert found.largest_difference == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_no_number_is_a_difference(bad: float) -> None:
    found = compare(replace(ORACLE, logprobs=(-0.5, bad, -0.25)), ORACLE)
    assert not found.equal
    assert found.largest_difference == math.inf


@pytest.mark.parametrize("tokens", [(5, 6), (5, 6, 7, 8)])
def test_another_length_is_a_difference(tokens: tuple[int, ...]) -> None:
    served = replace(ORACLE, token_ids=tokens, logprobs=(-0.5, -1.0, -0.25, -0.1)[: len(tokens)])
    found = compare(served, ORACLE)
    assert found.difference == f"{len(tokens)} tokens served, the oracle gave 3"


@pytest.mark.parametrize(
    ("prompt", "said"),
    [((1, 2, 9, 3), "token 2: served 9, oracle 2"), ((1, 2, 2), "token 3: served ends, oracle 3")],
)
def test_another_prompt_is_a_difference(prompt: tuple[int, ...], said: str) -> None:
    found = compare(replace(ORACLE, prompt_token_ids=prompt), ORACLE)
    assert found.difference is not None
    assert said in found.difference


def test_two_empty_answers_prove_nothing() -> None:
    empty = replace(ORACLE, token_ids=(), logprobs=())
    assert not compare(empty, empty).equal


def test_an_answer_survives_json() -> None:
    assert Answer.from_json(ORACLE.as_json()) == ORACLE


def test_the_tolerance_lies_well_between_rounding_and_faults() -> None:
    # Measured: rounding moves a logprob by 2e-5 at most, the least weight by 0.1.
    assert 2e-5 * 10 < LOGPROB_TOLERANCE < 0.1 / 10
