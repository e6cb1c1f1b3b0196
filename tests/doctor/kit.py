"""Boxes for the doctor's tests: one on which every check passes, and ways to spoil it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from rig.box.facts import (
    Box,
    Bridge,
    Card,
    CardProcess,
    Host,
    KernelEvent,
    Link,
    NumaNode,
    Pair,
    RayProcess,
)
from rig.box.rig_file import CardsTable, LinkTable, P2PTable, PowerTable, Rig
from rig.doctor.context import Context, Engine, Port, Wheel
from rig.doctor.finding import State
from rig.p2p.verdict import Outcome, Result, Verdict, Way

GIB = 1 << 30
WHEEL = Wheel(torch="2.14.0", cuda=(13, 0), source="a test")
_T = TypeVar("_T", bound=BaseModel)


def with_(thing: _T, **changes: Any) -> _T:
    """A copy with other values, checked: a misspelt name is refused."""
    return type(thing).model_validate({**thing.model_dump(), **changes})


def card(index: int, **changes: Any) -> Card:
    good = Card(
        index=index,
        bus_id=f"0000:0{index + 1}:00.0",
        name="NVIDIA GeForce RTX 3090",
        uuid=f"GPU-{index}",
        compute_capability=(8, 6),
        memory_bytes=24 * GIB,
        memory_free_bytes=24 * GIB - (300 << 20),
        bar1_bytes=32 * GIB,
        link=Link(
            generation_now=4,
            generation_max=4,
            width_now=16,
            width_max=16,
            slot_generation_max=4,
            slot_width_max=16,
            behind_chipset=False,
        ),
        numa_node=0,
        bridges=(f"0000:00:0{index + 1}.1",),
        display_active=False,
        mig=False,
        persistence=True,
        power_limit_w=350.0,
        power_default_w=350.0,
        power_max_w=390.0,
        graphics_clock_mhz=210,
        graphics_clock_max_mhz=2100,
        graphics_clock_locked_mhz=1550,
        utilisation_percent=0,
        temperature_c=35,
        processes=(),
    )
    return with_(good, **changes)


def link(**changes: Any) -> dict[str, Any]:
    """What `card(0, link=link(...))` takes."""
    return with_(card(0).link, **changes).model_dump()


def pair(first: int, second: int, **changes: Any) -> Pair:
    return with_(
        Pair(first=first, second=second, level="PHB", nvlinks=0, p2p="granted", p2p_why="OK"),
        **changes,
    )


HOST = Host(
    driver_version="595.58.03",
    driver_cuda=(13, 2),
    kernel="6.8.0",
    iommu="passthrough",
    virtual_machine=False,
    wsl=False,
    container="",
    cpus=16,
    memory_bytes=128 * GIB,
    memory_available_bytes=100 * GIB,
    cgroup_limit_bytes=-1,
    cgroup_used_bytes=GIB,
    memlock_bytes=-1,
    shm_bytes=64 * GIB,
    shm_free_bytes=64 * GIB,
    tmp_free_bytes=50 * GIB,
    numa_nodes=(NumaNode(node=0, cpus=tuple(range(16)), memory_bytes=128 * GIB),),
    ray=(),
    p2p_cache_files=(),
    kernel_events=(),
)


def box(*cards: Card, pairs: tuple[Pair, ...] | None = None, **host: Any) -> Box:
    """A good box: two cards unless others are given; the host's facts as changed."""
    have = cards or (card(0), card(1))
    numbers = [one.index for one in have]
    all_pairs = tuple(pair(a, b) for a in numbers for b in numbers if a < b)
    bridges = tuple(
        Bridge(bus_id=bus, acs_redirects=False) for one in have for bus in one.bridges or ()
    )
    return Box(
        source="a test",
        cards=have,
        pairs=all_pairs if pairs is None else pairs,
        bridges=bridges,
        host=with_(HOST, **host),
    )


def rig(**changes: Any) -> Rig:
    good = Rig(
        name="test-rig",
        cards=CardsTable(
            count=2, name="RTX 3090", vram_gib=24, compute_capability=(8, 6), nvlink_pairs=()
        ),
        link=LinkTable(generation=4, width=16),
        power=PowerTable(psu_w=1600),
        p2p=P2PTable(policy="verified"),
    )
    return with_(good, **changes)


def result(way: Way, cards: tuple[int, ...], outcome: Outcome = "passed") -> Result:
    return Result(way=way, cards=cards, size_bytes=1 << 20, outcome=outcome)


def verdict(*more: Result, cards: tuple[int, ...] = (0, 1)) -> Verdict:
    """A verdict that proves everything, and after it what a test adds."""
    copies = [result("copy", (a, b)) for a in cards for b in cards if a != b]
    both = [result("copy-both-ways", (a, b)) for a in cards for b in cards if a < b]
    all_cards = [result("nccl-p2p", cards), result("custom", cards)]
    return Verdict(
        key="k", made_at="2026-11-30T00:00:00Z", results=(*copies, *both, *all_cards, *more)
    )


def context(**changes: Any) -> Context:
    good = Context(
        pinned_bytes=4 * GIB,
        wheel=WHEEL,
        engine=Engine(python="/e/bin/python", vllm="0.33.0+rig.3", ray="2.60.0"),
        ports=(Port(number=8000, taken=False),),
        user="ada",
        verdict=verdict(),
    )
    return with_(good, **changes)


def process(pid: int, size: int | None, name: str = "python") -> CardProcess:
    return CardProcess(pid=pid, name=name, memory_bytes=size)


def event(**facts: Any) -> dict[str, Any]:
    """What `box(kernel_events=(event(...),))` takes; of card 0 unless said."""
    given = {"kind": "xid", "where": "0000:01:00.0", **facts}
    return KernelEvent.model_validate(given).model_dump()


BARE = Context()
NO_CARDS = with_(box(), cards=())
NO_DRIVER = with_(box(driver_version=None, driver_cuda=None), cards=None, pairs=None)


@dataclass(frozen=True)
class Case:
    """One check on one box. `says` must stand in what was seen or in the next step."""

    check: str
    state: State
    says: str
    box: Box = field(default_factory=box)
    rig: Rig | None = None
    context: Context = field(default_factory=context)


def spoilt(**changes: Any) -> Box:
    """A good box but for its second card."""
    return box(card(0), card(1, **changes))


def refused(**changes: Any) -> Box:
    """A good box, but the driver refuses P2P."""
    return box(pairs=(pair(0, 1, p2p="refused", p2p_why="GNS", **changes),))


def many(number: int, **changes: Any) -> Box:
    """A good box of so many cards, its pairs as changed."""
    cards = tuple(card(index) for index in range(number))
    pairs = tuple(pair(a, b, **changes) for a in range(number) for b in range(a + 1, number))
    return box(*cards, pairs=pairs)


def ray(*users: str | None) -> Box:
    """A good box on which these users' Ray nodes run."""
    return box(ray=tuple(RayProcess(pid=70 + i, user=u) for i, u in enumerate(users)))
