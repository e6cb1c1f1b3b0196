"""What the checks by value have shown for one box, and what that allows.

The verdict is kept with a key made of all that can change it: cards, their slots, links, driver,
the versions of torch and NCCL. Another key means: nothing is known.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Way = Literal["copy", "copy-both-ways", "nccl-p2p", "nccl-no-p2p", "custom", "pcie-ipc"]
# "failed" is an error that said so (refused, unsupported by the driver); "wrong" is bad data.
Outcome = Literal["passed", "wrong", "hang", "crash", "failed", "not run"]


class Result(BaseModel):
    """One check: which cards (PCI order), how many bytes, what came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    way: Way
    cards: tuple[int, ...]
    size_bytes: int
    outcome: Outcome
    gb_per_s: float | None = None  # 1e9 bytes; None when it was not measured
    detail: str = ""


class Verdict(BaseModel):
    """All results of one run of `rig p2p`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    made_at: str  # ISO 8601, UTC
    results: tuple[Result, ...]

    def proven(self, way: Way, cards: tuple[int, ...]) -> bool:
        """Whether every result of this way over exactly these cards passed, and there is one."""
        found = [r for r in self.results if r.way == way and set(r.cards) == set(cards)]
        return bool(found) and all(r.outcome == "passed" for r in found)
