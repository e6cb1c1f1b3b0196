"""Judges a served answer by the oracle's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rig.rehearsal.exchange import Answer

# Both sides compute in float32, but add up the same numbers in another order, the more so the more
# ranks share a sum. Measured on vLLM 0.31 and 0.32 at 1, 2 and 4 ranks: logprobs differ by 2e-5 at
# most. The weight tensor that matters least to the answer moves a logprob by 1e-1 when its rows
# are rolled by one (`sensitivity.py`). The tolerance lies midway between the two, on a
# logarithmic scale: fifty times above rounding, a hundred times below a fault.
LOGPROB_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Args:
        tokens: how many tokens the oracle's answer has.
        largest_difference: of two logprobs at the same position, over the positions whose
            tokens agree; infinite when a logprob is not a number.
        difference: the first thing that differs, in words; None when the answers are equal.
    """

    tokens: int
    largest_difference: float
    difference: str | None

    @property
    def equal(self) -> bool:
        return self.difference is None


def compare(served: Answer, oracle: Answer, tolerance: float = LOGPROB_TOLERANCE) -> Comparison:
    """Compare a served answer with the oracle's.

    Args:
        tolerance: the largest difference of two logprobs that is still equal.
    """
    return Comparison(
        tokens=len(oracle.token_ids),
        largest_difference=_largest_difference(served, oracle),
        difference=_first_difference(served, oracle, tolerance),
    )


def _first_difference(served: Answer, oracle: Answer, tolerance: float) -> str | None:
    if not oracle.token_ids:
        return "the oracle's answer is empty: it proves nothing"
    place = _first_unequal(served.prompt_token_ids, oracle.prompt_token_ids)
    if place is not None:
        return (
            f"the prompts differ at token {place}: served {_at(served.prompt_token_ids, place)}, "
            f"oracle {_at(oracle.prompt_token_ids, place)} (chat template or image processor)"
        )
    pairs = zip(served.token_ids, oracle.token_ids, served.logprobs, oracle.logprobs, strict=False)
    for position, (token, right_token, logprob, right_logprob) in enumerate(pairs):
        if token != right_token:
            return (
                f"token {position} is {token} (logprob {logprob:.6f}), "
                f"the oracle's is {right_token} (logprob {right_logprob:.6f})"
            )
        # Written so that a NaN on either side is a difference.
        if not abs(logprob - right_logprob) <= tolerance:
            return (
                f"token {position} has logprob {logprob:.6f}, the oracle's has "
                f"{right_logprob:.6f}: further apart than {tolerance:g}"
            )
    if len(served.token_ids) != len(oracle.token_ids):
        return f"{len(served.token_ids)} tokens served, the oracle gave {len(oracle.token_ids)}"
    return None


def _first_unequal(left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
    if left == right:
        return None
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))


def _at(ids: tuple[int, ...], place: int) -> str:
    return str(ids[place]) if place < len(ids) else "ends"


def _largest_difference(served: Answer, oracle: Answer) -> float:
    largest = 0.0
    pairs = zip(served.token_ids, oracle.token_ids, served.logprobs, oracle.logprobs, strict=False)
    for token, right_token, logprob, right_logprob in pairs:
        if token != right_token:
            break
        difference = abs(logprob - right_logprob)
        largest = max(largest, math.inf if math.isnan(difference) else difference)
    return largest
