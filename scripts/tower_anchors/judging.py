"""Runs a model with its towers at rest, and finds which lines make a difference."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tower_anchors.strictest import unchanged
from tower_anchors.watch import AtRest, Site, Watch, watching

Runs = Mapping[str, Callable[[nn.Module], Any]]
"""What is run on a model: case -> a function of the model."""


@dataclass(frozen=True)
class Finding:
    """One line that a resting weight meets.

    Attributes:
        site: the line.
        kind: `read` of a device, or `compute` on the weight.
        how: attribute or op.
        weights: names of the weights.
        harmless: whether the result is the same whatever it is told.
        why: what it leads to, if it is not.
    """

    site: Site
    kind: str
    how: tuple[str, ...]
    weights: tuple[str, ...]
    harmless: bool
    why: str = ""


@dataclass
class Judgement:
    """What was found in one model.

    Attributes:
        findings: lines, harmless ones too.
        notes: of what is odd and no anchor.
        met: names of the weights that the runs came across.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    met: set[str] = field(default_factory=set)

    @property
    def anchors(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.harmless]


class Differs(Exception):
    """A result is not that of the resident model."""


def results(model: nn.Module, run: Callable[[nn.Module], Any], watch: Watch) -> list[torch.Tensor]:
    """The tensors of one run, which leaves nothing behind in the model or in caches."""
    clear_caches()
    torch.manual_seed(0)
    with unchanged(model), watching(watch), torch.no_grad():
        found = [leaf for leaf in tree_leaves(run(model)) if isinstance(leaf, torch.Tensor)]
        # Views of buffers must not change with the next run.
        return [tensor.clone() if tensor.device.type != "meta" else tensor for tensor in found]


def same(these: list[torch.Tensor], those: list[torch.Tensor]) -> str:
    """What differs between two results; empty if they are equal bit for bit, on equal devices."""
    if len(these) != len(those):
        return f"{len(these)} results, not {len(those)}"
    for a, b in zip(these, those, strict=True):
        if a.device != b.device:
            return f"a result on {a.device.type}, not on {b.device.type}"
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"a result of {tuple(a.shape)} {a.dtype}, not {tuple(b.shape)} {b.dtype}"
        if not torch.equal(_bits(a), _bits(b)):
            return "a result of other values"
    return ""


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    held = getattr(tensor, "held", tensor).detach()
    return held.contiguous().view(torch.uint8) if held.dim() else held.reshape(1).view(torch.uint8)


def judge(model: nn.Module, runs: Runs, rest: Callable[[nn.Module], Any]) -> Judgement:
    """Compare a model whose weights rest with itself, resident.

    First the resident model runs. Then its weights rest: a run that answers every question as if
    they did not, and lets every op through, lists all lines that a resting weight meets. Then
    each line that asked for a device is told the truth, alone; where that makes a run fail or its
    result differ, it is an anchor. A line that computes on a resting weight is one by itself.
    Last, all are told the truth at once, and nothing is let through.

    Args:
        model: resident on the stand-in; its weights rest afterwards.
        runs: what is run.
        rest: puts its weights to rest.
    """
    expected: dict[str, list[torch.Tensor]] = {}
    mixed: set[Site] = set()
    for case, run in runs.items():
        watch = Watch(tolerated=None)
        expected[case] = results(model, run, watch)
        mixed |= set(watch.mixes)
    judgement = Judgement()
    judgement.notes += [f"resident: host tensors at {s.file}:{s.line}" for s in sorted(mixed)]

    rest(model)
    reads: dict[Site, set[tuple[str, str]]] = {}
    computes: dict[Site, set[tuple[str, str]]] = {}
    known = set(mixed)
    for case, run in runs.items():
        watch = Watch(truthful=frozenset(), tolerated=None)
        got = results(model, run, watch)
        judgement.met |= watch.met
        for site, seen in watch.reads.items():
            reads.setdefault(site, set()).update(seen)
        for site, seen in watch.computes.items():
            computes.setdefault(site, set()).update(seen)
        known |= set(watch.mixes) | set(watch.computes)
        if why := same(got, expected[case]):
            judgement.notes.append(f"{case}: as if on the device, {why}")

    failed_at: list[Site] = []

    def trial(truthful: frozenset[Site] | None, tolerated: frozenset[Site]) -> str:
        failed_at.clear()
        for case, run in runs.items():
            watch = Watch(truthful=truthful, tolerated=tolerated)
            try:
                why = same(results(model, run, watch), expected[case])
            except AtRest as error:
                why = str(error)
                failed_at.append(error.site)
            except Exception as error:
                why = f"{type(error).__name__}: {str(error).splitlines()[0][:160] or '?'}"
            if why:
                return f"{case}: {why}"
        return ""

    for site, seen in sorted(computes.items()):
        judgement.findings.append(_finding(site, "compute", seen, "computed on the host"))
    for site, seen in sorted(reads.items()):
        why = trial(frozenset({site}), frozenset(known))
        if not why and any(how == "is_cuda" for how, _ in seen):
            why = "chooses by is_cuda, which differs at rest"
        judgement.findings.append(_finding(site, "read", seen, why))
    why = trial(None, frozenset(mixed))
    _all_at_once(judgement, why, failed_at[0] if failed_at else Site("?", 0, ""), reads)
    return judgement


def _finding(site: Site, kind: str, seen: set[tuple[str, str]], why: str) -> Finding:
    how, weights = (tuple(sorted(set(part))) for part in zip(*seen, strict=True))
    return Finding(site, kind, how, weights, not why, why)


def _all_at_once(
    judgement: Judgement, why: str, at: Site, reads: Mapping[Site, set[tuple[str, str]]]
) -> None:
    """What shows only when all lines are told the truth: several together make a difference.

    Args:
        why: what that leads to, if to anything.
        at: where.
    """
    if not why or judgement.anchors:
        return
    together = [f for f in judgement.findings if f.site in reads]
    if not together:
        judgement.notes.append(f"at rest: {why}")
        judgement.findings.append(Finding(at, "compute", ("?",), ("?",), False, why))
    for finding in together:
        judgement.findings.remove(finding)
        judgement.findings.append(
            Finding(
                finding.site, finding.kind, finding.how, finding.weights, False, f"together: {why}"
            )
        )


def clear_caches() -> None:
    """Empty the caches of model code: a table kept from a resident run would hide an anchor."""
    for cached in _caches(len(sys.modules)):
        cached.cache_clear()


@functools.lru_cache(maxsize=1)
def _caches(modules: int) -> list[Any]:
    found = []
    for name, module in list(sys.modules.items()):
        if name.startswith(_CACHING):
            for value in list(vars(module).values()):
                members = vars(value).values() if isinstance(value, type) else ()
                found += [c for c in map(_plain, (value, *members)) if isinstance(c, _Cache)]
    return found


def _plain(value: Any) -> Any:
    return value.__func__ if type(value) in (classmethod, staticmethod) else value


_Cache = functools._lru_cache_wrapper
_CACHING = ("vllm.model_executor.", "vllm.multimodal.")
