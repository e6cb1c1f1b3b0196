"""Run cases: each in processes of its own, watched, ended as a group, with nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rig.box.facts import Box
from rig.p2p.cases import Case
from rig.p2p.group import Group, scratch
from rig.p2p.judge import CaseEnd, bad_cards, judge
from rig.p2p.present import missing_cards
from rig.p2p.surroundings import environment_of, write_spec
from rig.p2p.verdict import Result, Way

_START_S: dict[Way, float] = {"custom": 300.0, "pcie-ipc": 900.0}  # the second compiles kernels

Progress = Callable[[str], None]
Missing = Callable[[Box], dict[int, str]]
Store = Callable[[Case, Sequence[Result]], None]


@dataclass(frozen=True)
class Conditions:
    """How cases are run.

    Args:
        python: the engine's.
        device: "cuda", or "cpu" for a rehearsal.
        iterations: transfers per size, each with new data.
        seed: of the data.
        silent_s: seconds without a word from any rank that count as a hang. Until the first
            size begins at least 120 (300 and 900 for vLLM's own ways) are given.
        fault: one to inject; rehearsals only.
        missing: how the cards are asked for after a case that did not end well.
    """

    python: Path
    device: str = "cuda"
    iterations: int = 6
    seed: int = field(default_factory=lambda: int.from_bytes(os.urandom(4), "little"))
    silent_s: float = 60.0
    fault: str = ""
    missing: Missing = missing_cards

    def patience_s(self, way: Way, begun: bool) -> float:
        return self.silent_s if begun else max(self.silent_s, _START_S.get(way, 120.0))


def run_cases(
    cases: Sequence[Case],
    box: Box,
    conditions: Conditions,
    progress: Progress,
    store: Store = lambda case, results: None,
) -> list[Result]:
    """Run them in order; a case on a card that hung or was lost is not run, and says so.

    Args:
        store: called with what is known of a case: before it runs (in case the machine does not
            survive it) and after it.
    """
    bad: dict[int, str] = {}
    every: list[Result] = []
    for number, case in enumerate(cases, 1):
        why = case.skip or next((bad[card] for card in case.cards if card in bad), "")
        if why:
            results = _all(case, "not run", why)
        else:
            progress(f"[{number}/{len(cases)}] {case} ...")
            unfinished = "the check did not come back: the machine went down, or it was killed"
            store(case, _all(case, "crash", unfinished))
            try:
                results, end = run_case(case, box, conditions)
            except KeyboardInterrupt:
                store(case, _all(case, "not run", "interrupted"))
                raise
            bad |= bad_cards(case, results, end)
        store(case, results)
        every += results
        progress(f"[{number}/{len(cases)}] {case}: {in_words(results)}")
    return every


def _all(case: Case, outcome: str, why: str) -> list[Result]:
    return [
        Result.model_validate(
            {
                "way": case.way,
                "cards": case.cards,
                "size_bytes": size,
                "outcome": outcome,
                "detail": why,
            }
        )
        for size in case.sizes
    ]


def in_words(results: Sequence[Result]) -> str:
    """The outcome of one case on a line."""
    worst = next((r for r in results if r.outcome != "passed"), None)
    if worst is None:
        rates = [r.gb_per_s for r in results if r.gb_per_s is not None]
        rate = f", up to {max(rates):.1f} GB/s" if rates else ""
        note = f" ({results[-1].detail})" if results and results[-1].detail else ""
        return f"passed, {len(results)} sizes{rate}{note}"
    if worst.outcome == "not run":
        return f"not run: {worst.detail}"
    return f"{worst.outcome.upper()} at {worst.size_bytes} bytes: {worst.detail}"


def run_case(case: Case, box: Box, conditions: Conditions) -> tuple[list[Result], CaseEnd]:
    """Run one case to its end, whatever that is."""
    with scratch() as folder:
        spec = write_spec(
            folder,
            case,
            device=conditions.device,
            iterations=conditions.iterations,
            seed=conditions.seed,
            fault=conditions.fault,
        )
        env = environment_of(case, box, folder, os.environ, device=conditions.device)
        group = Group(case, conditions.python, spec, env)
        try:
            silent_s = group.watch(conditions.patience_s)
        finally:
            undead = group.end()
        end = CaseEnd(group.ends(), silent_s, undead=undead)
    real = box if conditions.device == "cuda" else None
    results = judge(case, end, real)
    if any(r.outcome in ("hang", "crash", "failed") for r in results):
        lost = conditions.missing(box)
        if lost:
            end = CaseEnd(end.ranks, end.silent_s, lost, undead)
            results = judge(case, end, real)
    return results, end
