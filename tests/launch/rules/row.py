"""A row of the table of rules, and what its facts are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any

from rig.box.facts import Box, Card, Host, Link, Pair
from rig.box.rig_file import CardsTable, LinkTable, Rig
from rig.launch.decide import Decision, User, decide
from rig.memory.result import Advice, MemoryPlan, ModelFacts
from rig.memory.result import Layout as PlanLayout
from rig.p2p.verdict import Result, Verdict, Way

GIB = 2**30
AMPERE, ADA = (8, 6), (8, 9)
CUSTOM_OFF = "--disable-custom-all-reduce"
PERMIT = "VLLM_CUSTOM_ALLREDUCE_PCIE"
PCIE_IPC = "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
SEGMENTS = "expandable_segments:True"


def rig(count: int = 4, **changes: Any) -> Rig:
    made = Rig(
        name=f"{count}x3090",
        cards=CardsTable(count=count, name="RTX 3090", vram_gib=24, compute_capability=AMPERE),
        link=LinkTable(generation=4, width=16),
    )
    return made.model_copy(update=changes)


def box(
    count: int = 4,
    *,
    level: str | None = "PHB",
    nvlink: Sequence[tuple[int, int]] = (),
    nodes: Sequence[int | None] = (),
    cards: Mapping[int, Mapping[str, Any]] | None = None,
    **host: Any,
) -> Box:
    def card(index: int) -> Card:
        said: dict[str, Any] = {
            "bus_id": f"0000:{index + 1:02x}:00.0",
            "uuid": f"GPU-{index}",
            "compute_capability": AMPERE,
            "memory_bytes": 24 * GIB,
            "link": Link(width_now=16),
            "numa_node": nodes[index] if nodes else 0,
            "processes": (),
        }
        return Card(index=index, **{**said, **(cards or {}).get(index, {})})

    def joined(pair: tuple[int, int]) -> str | None:
        return "NV" if pair in nvlink else level

    return Box(
        source="a test",
        cards=tuple(card(index) for index in range(count)),
        pairs=tuple(
            Pair(first=a, second=b, level=joined((a, b))) for a, b in combinations(range(count), 2)
        ),
        host=Host(driver_version="580.1", container="", **host),
    )


def verdict(*ways: tuple[Way, tuple[int, ...]], outcome: str = "passed") -> Verdict:
    """These ways passed; every copy among the cards that they name passed as well."""
    every = sorted({card for _, cards in ways for card in cards})
    pairs = list(permutations(every, 2))
    copies = [("copy", pair) for pair in pairs] + [("copy-both-ways", pair) for pair in pairs]
    results = [
        Result(way=way, cards=cards, size_bytes=1, outcome=outcome)
        for way, cards in [*ways, *copies]
    ]
    return Verdict(key="k", made_at="2026-01-01T00:00:00Z", results=tuple(results))


def plan(tensor: int, pipeline: int = 1, idle: int = 0, flags: Sequence[Advice] = ()) -> MemoryPlan:
    model = ModelFacts(
        source="m",
        architecture="A",
        attention_heads=32,
        kv_heads=8,
        layers=64,
        max_model_len=32768,
        dtype="bfloat16",
    )
    return MemoryPlan(
        model=model,
        layout=PlanLayout(tensor=tensor, pipeline=pipeline, idle=idle),
        ranks=(),
        kv_bytes_per_token=1.0,
        kv_tokens=1,
        max_model_len=32768,
        host_pinned=0,
        fits=True,
        flags=tuple(flags),
    )


@dataclass(frozen=True)
class Row:
    """One rule with one set of facts.

    `env` value None: the variable is not set. `args`: these words stand in this order, together.
    `kinds`: a reason of this kind about this subject is given.
    """

    rule: str
    rig: Rig | None = field(default_factory=rig)
    box: Box | None = None
    verdict: Verdict | None = None
    plan: MemoryPlan | None = None
    said: tuple[str, ...] = ()
    inherited: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    release: str | None = "0.33.0"
    numactl: bool | None = True
    env: Mapping[str, str | None] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    no_args: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()

    def decide(self) -> Decision:
        user = User(arguments=self.said, inherited=self.inherited, folder="/l", **self.user)
        return decide(
            self.rig,
            self.box,
            self.verdict,
            self.plan,
            user,
            release=self.release,
            numactl=self.numactl,
        )


TWO, FOUR = (0, 1), (0, 1, 2, 3)
NVLINK_2: dict[str, Any] = {"box": box(4, nvlink=[(0, 2), (1, 3)]), "plan": plan(2, 2)}
