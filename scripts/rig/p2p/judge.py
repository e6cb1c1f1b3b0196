"""From what the ranks said and how they ended to results. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rig.box.facts import Box
from rig.p2p.cases import Case
from rig.p2p.verdict import Outcome, Result

Event = dict[str, Any]


@dataclass(frozen=True)
class RankEnd:
    """How one process of a case ended.

    Args:
        events: what it said, in order.
        status: its exit status, minus the signal if one ended it, None if it had to be killed.
        tail: the last lines of its standard error.
        ended_at: when its end was seen, on the clock of its events.
    """

    events: tuple[Event, ...] = ()
    status: int | None = 0
    tail: str = ""
    ended_at: float = 0.0

    def said(self, event: str) -> list[Event]:
        return [e for e in self.events if e["event"] == event]

    @property
    def gave_up(self) -> bool:
        return bool(self.status or self.said("error"))

    @property
    def gave_up_at(self) -> float:
        errors = self.said("error")
        return float(errors[0].get("at", 0.0)) if errors else self.ended_at


@dataclass(frozen=True)
class CaseEnd:
    """How a case ended.

    Args:
        silent_s: if it was killed for it: how long nobody had said anything.
        lost: cards that the driver does not show any more, or wants to be reset, with its words.
        undead: process ids that not even SIGKILL ended.
    """

    ranks: tuple[RankEnd, ...]
    silent_s: float | None = None
    lost: dict[int, str] | None = None
    undead: tuple[int, ...] = ()


def judge(case: Case, end: CaseEnd, box: Box | None = None) -> list[Result]:
    """One result for each size of the case.

    The first size that some rank did not finish has the cause of the end as its outcome; sizes
    after it are "not run". An end after the last size is that size's outcome: a launch that
    hangs when it stops is no good either.
    """
    refused = [e["detail"] for rank in end.ranks for e in rank.said("refused")]
    other = refused[0] if refused else _misled(case, end, box) or _wrong_road(case, end)
    if other and end.silent_s is None and not end.lost:
        # What was checked, if anything, is not what was meant.
        return [_result(case, size, "failed", detail=other) for size in case.sizes]
    cause = _cause(end)
    finished = _finished(case, end)
    results = []
    for size, done in zip(case.sizes, finished, strict=False):
        wrong = "; ".join(e["wrong"] for e in done if e["wrong"])
        rates = [e["gb_per_s"] for e in done if e["gb_per_s"] is not None]
        rate = min(rates) if rates else None
        results.append(
            _result(case, size, "wrong" if wrong else "passed", rate, wrong or _notes(end))
        )
    if cause is None and len(finished) == len(case.sizes):
        return results
    outcome, why = cause or ("failed", "the check ended before it was complete")
    if len(finished) == len(case.sizes):
        last = results.pop()
        right = last.outcome == "passed"
        whole = f"after the values were checked: {why}" if right else f"{why}; and {last.detail}"
        results.append(last.model_copy(update={"outcome": outcome, "detail": whole}))
        return results
    at = len(finished)
    partly = "; ".join(e["wrong"] for e in _done_at(case, end, at) if e["wrong"])
    detail = f"{why}; and {partly}" if partly else why
    results.append(_result(case, case.sizes[at], outcome, detail=detail))
    for size in case.sizes[at + 1 :]:
        results.append(_result(case, size, "not run", detail=f"a smaller size ended in: {outcome}"))
    return results


def _result(
    case: Case, size: int, outcome: Outcome, rate: float | None = None, detail: str = ""
) -> Result:
    return Result(
        way=case.way,
        cards=case.cards,
        size_bytes=size,
        outcome=outcome,
        gb_per_s=rate,
        detail=detail,
    )


def _done_at(case: Case, end: CaseEnd, at: int) -> list[Event]:
    return [e for rank in end.ranks for e in rank.said("done") if e["size"] == case.sizes[at]]


def _finished(case: Case, end: CaseEnd) -> list[list[Event]]:
    """For each leading size that every rank finished, what each said of it."""
    found = []
    for at in range(len(case.sizes)):
        done = _done_at(case, end, at)
        if len(done) < len(end.ranks):
            break
        found.append(done)
    return found


def _cause(end: CaseEnd) -> tuple[Outcome, str] | None:
    """Why it did not end by itself and well."""
    if end.lost:
        return "lost", "; ".join(f"card {card}: {why}" for card, why in sorted(end.lost.items()))
    if end.silent_s is not None:
        undead = ", ".join(map(str, end.undead))
        stuck = f"; the driver holds pid {undead}, which cannot be killed" if undead else ""
        waiting = [
            f"rank {number}" for number, rank in enumerate(end.ranks) if not rank.said("end")
        ]
        return "hang", f"{', '.join(waiting)}: silent for {end.silent_s:.0f} s, killed{stuck}"
    bad = [(n, rank) for n, rank in enumerate(end.ranks) if rank.gave_up]
    if not bad:
        return None
    first, *others = sorted(bad, key=lambda found: (_follows(found[1]), found[1].gave_up_at))
    outcome: Outcome = "failed"
    if not first[1].said("error") and (first[1].status or 0) < 0:
        outcome = "crash"
    return outcome, "; then ".join(_how_it_ended(n, rank) for n, rank in (first, *others))


def _follows(rank: RankEnd) -> int:
    """How likely this end only follows from another rank's. An end may be seen late, so the
    clock alone does not tell: who had time to complain survived, and aborting is a complaint."""
    if rank.said("error") or rank.status == -signal.SIGABRT:
        return 1
    return 0


def _how_it_ended(number: int, rank: RankEnd) -> str:
    for event in rank.said("error"):
        return f"rank {number}: {event['detail']}"
    status = rank.status or 0
    if status < 0:
        return f"rank {number} ended by {_signal_name(-status)}{_tail(rank)}"
    return f"rank {number} ended with status {status}{_tail(rank)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(rank: RankEnd) -> str:
    last = [line for line in rank.tail.splitlines() if line.strip()]
    return f" ({last[-1].strip()[:200]})" if last else ""


def _misled(case: Case, end: CaseEnd, box: Box | None) -> str:
    """CUDA's numbers are trusted only where its bus ids are those of the cards that were meant."""
    if box is None:
        return ""
    known = {card.index: card.bus_id for card in box.cards or ()}
    want = [known.get(index) for index in case.cards]
    for rank in end.ranks:
        for event in rank.said("ready"):
            if event["bus_ids"] and event["bus_ids"] != want:
                return f"CUDA shows cards {event['bus_ids']} where {want} were meant"
    return ""


def transports(end: CaseEnd) -> list[str]:
    """What NCCL said that it moved data by."""
    return sorted(
        {road for rank in end.ranks for e in rank.said("transport") for road in e["used"]}
    )


def _wrong_road(case: Case, end: CaseEnd) -> str:
    """NCCL goes another way in silence when it must: right values then prove another thing."""
    used = transports(end)
    over_p2p = [road for road in used if road.startswith("P2P")]
    if case.way == "nccl-p2p" and used and used != over_p2p:
        others = ", ".join(road for road in used if road not in over_p2p)
        return f"NCCL moved data by {others}, not by P2P alone"
    if case.way == "nccl-no-p2p" and over_p2p:
        return f"NCCL moved data by {', '.join(over_p2p)} although P2P is off"
    return ""


def _notes(end: CaseEnd) -> str:
    used = transports(end)
    return f"by {', '.join(used)}" if used else ""


def bad_cards(case: Case, results: Sequence[Result], end: CaseEnd) -> dict[int, str]:
    """Cards that no further case may touch, with the reason."""
    bad = {card: f"card {card}: {why}" for card, why in (end.lost or {}).items()}
    for result in results:
        if result.outcome == "hang":
            why = f"{case} hung at {result.size_bytes} bytes"
            bad |= {card: why for card in case.cards if card not in bad}
    return bad
