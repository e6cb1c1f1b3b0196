"""What was found, for people: tables, and what it allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rig.box.facts import Box
from rig.p2p.cases import DECIDES, WAYS, groups_of
from rig.p2p.verdict import DANGEROUS, Result, Verdict, Way

UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def in_units(size: int) -> str:
    """ "64 KiB" for 65536."""
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def rows(results: Sequence[Result]) -> list[tuple[str, str, str, str, str]]:
    """(way, cards, outcome, GB/s, detail), one for each way and set of cards.

    The outcome is that of the worst size, and names it; the rate is the best one.
    """
    found: dict[tuple[Way, tuple[int, ...]], list[Result]] = {}
    for result in results:
        found.setdefault((result.way, result.cards), []).append(result)
    lines = []
    for way in WAYS:
        for (its_way, cards), group in found.items():
            if its_way == way:
                joint = {"copy": " to ", "copy-both-ways": " and "}.get(way, ", ")
                rates = [r.gb_per_s for r in group if r.gb_per_s is not None]
                rate = f"{max(rates):.1f}" if rates else "-"
                lines.append((way, joint.join(map(str, cards)), *_worst(group), rate))
    return [(way, cards, outcome, rate, detail) for way, cards, outcome, detail, rate in lines]


def _worst(group: Sequence[Result]) -> tuple[str, str]:
    order = [*DANGEROUS, "failed", "not run", "passed"]
    worst = min(group, key=lambda r: order.index(r.outcome))
    if worst.outcome in ("passed", "not run"):
        return worst.outcome, worst.detail
    if all(r.outcome == worst.outcome for r in group):
        return worst.outcome, worst.detail
    return f"{worst.outcome} at {in_units(worst.size_bytes)}", worst.detail


def allowed(verdict: Verdict, box: Box) -> list[str]:
    """For each way that may speed up serving: over which cards it is proven."""
    said = []
    groups = groups_of(box)
    for way in ("nccl-p2p", "custom", "pcie-ipc"):
        proven = [group for group in groups if verdict.proven(way, group)]
        over = "; ".join(", ".join(map(str, group)) for group in proven)
        state = f"proven over cards {over}" if proven else "stays off: proven over no cards"
        said.append(f"{DECIDES[way]}: {state}")
    indices = tuple(card.index for card in box.cards or ())
    if any(r.way == "nccl-no-p2p" for r in verdict.results):
        alone = verdict.proven("nccl-no-p2p", indices)
        state = "works" if alone else "DOES NOT WORK: do not serve on all of these cards"
        said.insert(0, f"NCCL without P2P, over all cards: {state}")
    return said


def is_good(results: Iterable[Result]) -> bool:
    """Whether what is needed passed, and nothing was wrong, hung, crashed or was lost.

    That something is refused, such as P2P by the driver, is no fault: it stays off.
    """
    every = list(results)
    needed = [r for r in every if r.way == "nccl-no-p2p"]
    return all(r.outcome == "passed" for r in needed) and not any(
        r.outcome in DANGEROUS for r in every
    )
