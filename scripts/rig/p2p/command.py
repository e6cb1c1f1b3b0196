"""`rig p2p`: look at the box, refuse what is unsafe, run, keep, show."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from rig.box.facts import Box, Card
from rig.console import console, out
from rig.errors import RigError
from rig.p2p.cases import REHEARSAL_LARGEST, WAYS, Case, guessed_seconds, plan_cases
from rig.p2p.group import sweep_scratch
from rig.p2p.key import key_of, key_parts, packages_of
from rig.p2p.run import Conditions, run_cases
from rig.p2p.store import look_up, only_one, write_verdict
from rig.p2p.table import allowed, is_good, rows
from rig.p2p.verdict import Result, Verdict, Way

GOOD, BAD = 0, 1
_MOST_RANKS = 16
_REHEARSED: tuple[Way, ...] = ("nccl-no-p2p", "copy", "copy-both-ways", "nccl-p2p")


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for.

    Args:
        python: the engine's.
        only: ways; all if empty.
        silent_s: seconds of silence that count as a hang.
        fault: one to inject into a rehearsal.
        folder: where verdicts are kept; the user's if None.
    """

    python: Path
    quick: bool = False
    only: tuple[Way, ...] = ()
    silent_s: float = 60.0
    force: bool = False
    json: bool = False
    fault: str = ""
    folder: Path | None = None


def ways_named(names: Sequence[str]) -> tuple[Way, ...]:
    """The ways of `--only`.

    Raises:
        RigError: there is no such way.
    """
    known = {str(way): way for way in WAYS}
    for name in names:
        if name not in known:
            raise RigError(f"there is no way {name!r}", next_step=f"one of: {', '.join(known)}")
    return tuple(known[name] for name in names)


def check(wanted: Wanted, read: Callable[[], Box]) -> int:
    """Run the checks of this box and keep what they show; the exit status."""
    box = read()
    cards = require_cards(box)
    require_idle(cards, wanted.force)
    packages = packages_of(wanted.python)
    if packages["torch"] == "none":
        raise RigError("no torch is installed there", where=wanted.python)
    cases = plan_cases(box, quick=wanted.quick, only=wanted.only)
    run = [case for case in cases if not case.skip]
    minutes = max(1, round(guessed_seconds(cases) / 60))
    console.print(
        f"{len(run)} checks on {len(cards)} cards, about {minutes} min (a guess: not measured); "
        f"{len(cases) - len(run)} are not made. Leave the cards alone meanwhile.",
        markup=False,
    )
    parts = key_parts(box, packages)
    sweep_scratch()
    with only_one(wanted.folder):
        keeper = _Keeper(box, parts, wanted)
        conditions = Conditions(wanted.python, silent_s=wanted.silent_s)
        results = run_cases(cases, box, conditions, _print, keeper.keep)
    return _show(results, keeper.verdict, box, wanted, kept=str(keeper.file))


class _Keeper:
    """Writes the verdict anew after each case: older results of other cases stay."""

    def __init__(self, box: Box, parts: dict[str, str], wanted: Wanted) -> None:
        self._box, self._folder = box, wanted.folder
        old = look_up(box, wanted.python, wanted.folder).verdict
        empty = Verdict(key=key_of(parts), made_at=_now(), results=(), parts=parts)
        self.verdict = old or empty
        self.file = write_verdict(self.verdict, box, self._folder)

    def keep(self, case: Case, results: Sequence[Result]) -> None:
        self.verdict = self.verdict.renewed(tuple(results), _now())
        self.file = write_verdict(self.verdict, self._box, self._folder)


def rehearse(wanted: Wanted, ranks: int) -> int:
    """The same on the CPU with gloo: shows that the check works. Nothing is kept."""
    if not 2 <= ranks <= _MOST_RANKS:
        raise RigError(f"a rehearsal takes 2 to {_MOST_RANKS} ranks, not {ranks}")
    cards = tuple(
        Card(index=index, bus_id=f"rank {index}", compute_capability=(0, 0))
        for index in range(ranks)
    )
    box = Box(source="a rehearsal on the CPU", cards=cards)
    if packages_of(wanted.python)["torch"] == "none":
        raise RigError("no torch is installed there", where=wanted.python)
    only = wanted.only or _REHEARSED
    cases = [
        _for_rehearsal(case)
        for case in plan_cases(box, quick=wanted.quick, only=only, groups=False)
    ]
    console.print(
        f"REHEARSAL: {len(cases)} checks on {ranks} CPU ranks with gloo. It says nothing about "
        "cards, and nothing is kept.",
        markup=False,
    )
    sweep_scratch()
    conditions = Conditions(
        wanted.python,
        device="cpu",
        silent_s=wanted.silent_s,
        fault=wanted.fault,
        missing=lambda box: {},
    )
    results = run_cases(cases, box, conditions, _print)
    verdict = Verdict(key="rehearsal", made_at=_now(), results=tuple(results))
    return _show(results, verdict, box, wanted, kept="")


def _for_rehearsal(case: Case) -> Case:
    sizes = tuple(size for size in case.sizes if size <= REHEARSAL_LARGEST)
    skip = "" if case.way in _REHEARSED else "it needs cards"
    return Case(case.way, case.cards, sizes, case.level, case.needed, skip)


def show(wanted: Wanted, read: Callable[[], Box]) -> int:
    """Print what is kept for this box; the exit status is 1 if nothing holds or it is bad."""
    box = read()
    require_cards(box)
    found = look_up(box, wanted.python, wanted.folder)
    if found.verdict is None:
        if wanted.json:
            out.print(json.dumps({"verdict": None, "why_not": found.why_not}))
        else:
            out.print(f"nothing is proven: {found.why_not}")
        return BAD
    return _show(found.verdict.results, found.verdict, box, wanted, kept="")


def require_cards(box: Box) -> tuple[Card, ...]:
    """Two or more cards.

    Raises:
        RigError: there are fewer.
    """
    if box.cards is None:
        raise RigError(
            "no cards can be seen: " + ("; ".join(box.notes[:1]) or "no NVIDIA driver answers"),
            next_step="./rig doctor; or try the check itself without cards: ./rig p2p --rehearse 4",
        )
    if len(box.cards) < 2:
        raise RigError(
            f"P2P needs two cards; the driver shows {len(box.cards)}",
            next_step="nothing to check: one card serves without it",
        )
    return box.cards


def require_idle(cards: Sequence[Card], force: bool) -> None:
    """Nobody else uses the cards: a hang or a reset would take them down with it.

    Raises:
        RigError: somebody does, and `force` is not set.
    """
    users = [
        f"card {card.index}: {process.name or 'process'} (pid {process.pid})"
        for card in cards
        for process in card.processes or ()
    ]
    if users and not force:
        raise RigError(
            "the cards are in use, and a failed check can take down what runs on them",
            detail="\n".join(users),
            next_step="stop them; or --force if it is only a desktop that you can lose",
        )
    unknown = [str(card.index) for card in cards if card.processes is None]
    if unknown:
        console.print(
            f"note: whether card {', '.join(unknown)} is in use cannot be seen", markup=False
        )


def _show(
    results: Sequence[Result], verdict: Verdict, box: Box, wanted: Wanted, *, kept: str
) -> int:
    good = is_good(results)
    rehearsal = verdict.key == "rehearsal"
    if wanted.json:
        whole = json.loads(verdict.model_dump_json())
        out.print(json.dumps({"verdict": whole, "good": good, "rehearsal": rehearsal}))
        return GOOD if good else BAD
    table = Table("way", "cards", "outcome", "GB/s", "detail")
    for row in rows(results):
        table.add_row(*row)
    out.print(table)
    if rehearsal:
        out.print("REHEARSAL on the CPU: the rates are memory's, nothing is known of any card.")
    else:
        for line in allowed(verdict, box):
            out.print(line)
    if kept:
        out.print(f"kept in {kept}")
    return GOOD if good else BAD


def _print(line: str) -> None:
    console.print(line, markup=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
