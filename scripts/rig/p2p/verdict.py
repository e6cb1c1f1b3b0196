"""What the checks by value have shown for one box, and what that allows.

The verdict is kept with a key made of all that can change it: cards, their slots, links, driver,
the versions of torch and NCCL. Another key means: nothing is known.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Way = Literal["copy", "copy-both-ways", "nccl-p2p", "nccl-no-p2p", "custom", "pcie-ipc"]
# "failed" is an error that said so (refused, unsupported by the driver); "wrong" is bad data;
# "lost" is a card that the driver does not show any more, or wants to be reset.
Outcome = Literal["passed", "wrong", "hang", "crash", "lost", "failed", "not run"]
DANGEROUS: tuple[Outcome, ...] = ("wrong", "hang", "crash", "lost")


class Result(BaseModel):
    """One check: which cards (PCI order), how many bytes, what came of it.

    For "copy" the order of the two cards is the direction: from the first to the second.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    way: Way
    cards: tuple[int, ...]
    size_bytes: int
    outcome: Outcome
    gb_per_s: float | None = None  # 1e9 bytes; None when it was not measured
    detail: str = ""


class Verdict(BaseModel):
    """All results for one box.

    `parts` is what the key is made of, by name: it says why another key is another one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    made_at: str  # ISO 8601, UTC
    results: tuple[Result, ...]
    parts: dict[str, str] = {}

    def proven(self, way: Way, cards: tuple[int, ...]) -> bool:
        """Whether every result of this way over exactly these cards passed, and there is one.

        For "copy" there must be one for each direction.
        """
        if way == "copy" and not {cards, cards[::-1]} <= {
            r.cards for r in self.results if r.way == way
        }:
            return False
        found = [r for r in self.results if r.way == way and set(r.cards) == set(cards)]
        return bool(found) and all(r.outcome == "passed" for r in found)

    def renewed(self, results: tuple[Result, ...], made_at: str) -> Verdict:
        """With these results in the place of older ones of the same way over the same cards."""
        again = {(r.way, r.cards) for r in results}
        kept = tuple(r for r in self.results if (r.way, r.cards) not in again)
        return self.model_copy(update={"results": kept + results, "made_at": made_at})
