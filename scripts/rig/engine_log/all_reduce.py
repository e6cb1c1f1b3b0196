"""Which all-reduce a start uses, and which of the engine's reasons speaks against another."""

from __future__ import annotations

import re
from typing import Literal

from rig.engine_log.facts import AllReduce, GroupBackends, Refusal, RefusalCode
from rig.engine_log.lines import Line

_BACKENDS = re.compile(
    r"Using \[([^\]]{0,300})\] all-reduce backends \(in dispatch order\) for group '([^']{0,80})'"
)
_NAME = re.compile(r"'([A-Z0-9_]{1,40})'")
_P2P_CACHE = re.compile(r"(?:generating|reading) GPU P2P access cache (?:in|from) (\S{1,400})")
# In the order in which they are tried; kinds by how the line begins.
_KINDS = (
    ("Custom allreduce is disabled", "custom"),
    ("Custom collectives are disabled", "custom"),
    ("Custom allreduce stays off", "opt-in"),
    ("VLLM_CUSTOM_ALLREDUCE_PCIE is not honoured", "opt-in"),
    ("FlashInfer PCIe IPC all-reduce", "pcie-ipc"),
    ("FlashInfer All Reduce is disabled", "flashinfer"),
    ("Failed to initialize FlashInfer All Reduce", "flashinfer"),
    ("SymmMemCommunicator:", "symmetric memory"),
)
_OPT_IN = re.compile(r"Custom allreduce is enabled on \d{1,4} PCIe-only GPUs by")
_CODES: tuple[tuple[str, RefusalCode], ...] = (
    ("unsupported world", "world-size"),
    ("does not support world_size", "world-size"),
    ("is not supported for world_size", "world-size"),
    ("more than two PCIe-only", "pcie-only"),
    ("lacks GPU P2P capability", "no-p2p"),
    ("missing custom allreduce library", "no-library"),
    ("flashinfer is not available", "no-library"),
    ("multi-node", "many-nodes"),
    ("to be on one node", "many-nodes"),
    ("multicast", "no-multicast"),
)


class AllReduceReader:
    """Give it each line, then ask for the facts."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[str, ...]] = {}
        self._refusals: dict[tuple[str, str], Refusal] = {}
        self._cache: str | None = None
        self._opt_in: str | None = None

    def see(self, line: Line) -> None:
        said = line.said
        if match := _BACKENDS.match(said):
            self._groups[match[2]] = tuple(_NAME.findall(match[1]))
        elif match := _P2P_CACHE.match(said):
            self._cache = match[1]
        elif _OPT_IN.match(said):
            self._opt_in = said
        elif kind := next((kind for begin, kind in _KINDS if said.startswith(begin)), ""):
            code = next((code for words, code in _CODES if words in said), "other")
            self._refusals.setdefault((kind, code), Refusal(kind=kind, code=code, line=said))

    def facts(self, *, off: bool) -> AllReduce:
        """`off`: the engine's configuration has custom all-reduce disabled."""
        custom: Literal["in use", "refused", "off"] | None = None
        if any("CUSTOM" in backends for backends in self._groups.values()):
            custom = "in use"
        elif off:
            custom = "off"
        elif any(kind == "custom" for kind, _ in self._refusals):
            custom = "refused"
        return AllReduce(
            custom=custom,
            groups=tuple(
                GroupBackends(group=group, backends=backends)
                for group, backends in self._groups.items()
            ),
            refusals=tuple(self._refusals.values()),
            opt_in=self._opt_in,
            p2p_cache=self._cache,
        )
