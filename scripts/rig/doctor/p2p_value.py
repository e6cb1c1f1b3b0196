"""What the checks by value showed, and what vLLM does with peer-to-peer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import combinations, permutations

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import Check, Said, used_cards
from rig.doctor.p2p_gates import few_cards, pairs_of
from rig.p2p.verdict import DANGEROUS, Result, Verdict, Way

PROVE = "`./rig p2p` (value-checked copies and all-reduce, with timeouts)"
# The sizes of custom all-reduce: _SUPPORTED_WORLD_SIZES in vLLM's custom_all_reduce.py, 0.31-0.33.
_CUSTOM_SIZES = (2, 4, 6, 8, 16)


def _bad(verdict: Verdict, numbers: set[int], ways: Sequence[Way]) -> list[Result]:
    return [
        result
        for result in verdict.results
        if result.way in ways and set(result.cards) <= numbers and result.outcome in DANGEROUS
    ]


def _copied(verdict: Verdict, source: int, target: int) -> bool:
    # In this direction: `Verdict.proven` takes both as one.
    found = [r for r in verdict.results if r.way == "copy" and r.cards == (source, target)]
    return bool(found) and all(result.outcome == "passed" for result in found)


def _missing(verdict: Verdict, numbers: tuple[int, ...]) -> list[str]:
    """What was not proven of all that P2P between these cards needs."""
    missing = [f"copy {a}-{b}" for a, b in permutations(numbers, 2) if not _copied(verdict, a, b)]
    missing += [
        f"copy-both-ways {a}-{b}"
        for a, b in combinations(numbers, 2)
        if not verdict.proven("copy-both-ways", (a, b))
    ]
    if not verdict.proven("nccl-p2p", numbers):
        missing.append(f"nccl-p2p over {'-'.join(map(str, numbers))}")
    return missing


def _told(results: list[Result]) -> str:
    told = dict.fromkeys(
        f"{r.way} over {'-'.join(map(str, r.cards))}: {r.outcome}" for r in results
    )
    return ", ".join(told)


def p2p_verdict(box: Box, rig: Rig | None, context: Context) -> Said:
    """What the checks by value showed."""
    cards = used_cards(box, context)
    few = few_cards(cards)
    if few is not None:
        return few
    numbers = tuple(sorted(card.index for card in cards or ()))
    verdict = context.verdict
    ways: tuple[Way, ...] = ("copy", "copy-both-ways", "nccl-p2p", "nccl-no-p2p")
    bad = [] if verdict is None else _bad(verdict, set(numbers), ways)
    if bad:
        step = "leave P2P off, as `serve` does; look at the gates above (IOMMU, BAR1, ACS, "
        step += "display), then `./rig p2p` again"
        if rig is not None and rig.p2p.policy == "off":
            return Said("warn", f"{_told(bad)}; the rig file keeps P2P off", step)
        return Said("fail", _told(bad), step)
    missing = [] if verdict is None else _missing(verdict, numbers)
    if verdict is not None and not missing:
        return Said("pass", f"proven by value on {verdict.made_at[:10]}")
    grants = [None if pair is None else pair.p2p for _, _, pair in pairs_of(box, cards or ())]
    if all(grant == "refused" for grant in grants):
        return Said("pass", "nothing is granted, so nothing is to be proven; `serve` uses no P2P")
    if verdict is not None:
        return Said("warn", f"not proven: {', '.join(missing)}", PROVE)
    if "granted" in grants:
        return Said("warn", f"granted and not proven: {context.no_verdict}", PROVE)
    return Said("unknown", f"{context.no_verdict}; the grant is not known", PROVE)


def custom_all_reduce(box: Box, rig: Rig | None, context: Context) -> Said:
    """Which of vLLM's reasons to refuse its own all-reduce applies here."""
    cards = used_cards(box, context)
    few = few_cards(cards)
    if few is not None:
        return few
    numbers = tuple(sorted(card.index for card in cards or ()))
    step = "nothing to do: NCCL does the all-reduce, `serve` passes --disable-custom-all-reduce"
    verdict = context.verdict
    bad = [] if verdict is None else _bad(verdict, set(numbers), ("custom", "pcie-ipc"))
    if bad:
        return Said("warn", _told(bad), "never turn it on here; NCCL does the all-reduce")
    if len(numbers) not in _CUSTOM_SIZES:
        return Said("warn", f"refused: {len(numbers)} ranks, it takes {_CUSTOM_SIZES}", step)
    if len(numbers) > 2:
        pairs = pairs_of(box, cards or ())
        if any(pair is None or pair.level is None for _, _, pair in pairs):
            return Said("unknown", "not known how the cards are joined")
        if any(pair is not None and pair.level != "NV" for _, _, pair in pairs):
            return Said("warn", f"refused: {len(numbers)} cards without NVLink between all", step)
    if verdict is None or not verdict.proven("custom", numbers):
        if any(pair and pair.p2p == "refused" for _, _, pair in pairs_of(box, cards or ())):
            return Said("warn", "refused: the driver grants no peer access", step)
        return Said("warn", "not proven by value, so it stays off", PROVE)
    return Said("pass", f"proven by value over {'-'.join(map(str, numbers))}")


def p2p_cache(box: Box, rig: Rig | None, context: Context) -> Said:
    """vLLM's own files on P2P access."""
    files = box.host.p2p_cache_files
    if files is None:
        return Said("unknown", "the cache folder could not be looked at")
    if not files:
        return Said("pass", "none")
    names = shlex.join(files)
    return Said("warn", f"{len(files)}: {', '.join(files)}", f"`rm {names}`: it is made anew")


CHECKS = (
    Check(
        "p2p-verdict",
        "peer-to-peer",
        p2p_verdict,
        "what `./rig p2p` showed by value on exactly this box",
        "A grant is not a delivery: granted P2P that hangs or gives wrong data is common.",
        "`./rig p2p`",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "custom-all-reduce",
        "peer-to-peer",
        custom_all_reduce,
        "which reason to refuse vLLM's custom all-reduce applies",
        "vLLM's refusal is easily read as a fault, and its use without true P2P corrupts answers.",
        "`nvidia-smi topo -m`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "p2p-cache",
        "peer-to-peer",
        p2p_cache,
        "vLLM's cached answers on P2P",
        "After cards were moved vLLM still believes this file (with VLLM_SKIP_P2P_CHECK=0).",
        "`ls ~/.cache/vllm/gpu_p2p_access_cache_for_*`",
        ("warn", "unknown", "pass"),
        needs_cards=False,
    ),
)
