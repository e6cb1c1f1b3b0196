"""What becomes of a tower on one rank: resident, or streamed with a ring, residents and a stem.

The rules are those of the streamer itself (`offloader/towers/plan.py` and `schedule.py` of the
patched vLLM; docs/streaming.md): the size of the slots, which units stay, what is fetched on
demand. A test compares both on the same tower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rig.memory.shards import TowerTensor
from rig.memory.tower_units import ALIGNMENT, TowerUnit, find_units

SLOTS = 3
"""What `--offload-tower-slots` is unless told otherwise."""

_CLEAN_NAMES = """
    qwen2_vl qwen2_5_vl qwen2_5_vl_vision qwen2_5_omni_vision_encoder qwen3_vl qwen3_vl_vision
    qwen3_vl_moe qwen3_vl_moe_vision qwen3_omni_moe_vision_encoder clip_vision_model
    siglip_vision_model pixtral intern_vit_6b internvl_vision glm4v_vision glm4v_moe_vision
    idefics2_vision idefics3_vision llama4_vision_model"""
CLEAN = frozenset(_CLEAN_NAMES.split())
"""Types of vision configs whose towers compute the same with their stem on the host.

They name classes of the streamer's own list of clean towers; a test compares them."""


@dataclass(frozen=True)
class TowerPlan:
    """Bytes on one rank.

    Args:
        total: all weights of the towers.
        resident: what stays on the card: residents of the budget, and a stem that is not clean.
        ring: the slots that blocks flow through.
        streamed: what an encode copies, ahead of the computation.
        on_demand: what it fetches and waits for.
        in_ring: what is there already when an encode begins.
        host: page-locked bytes of this rank.
        shared: whether ranks of one machine hold `host` once together.
    """

    total: int
    resident: int
    ring: int = 0
    streamed: int = 0
    on_demand: int = 0
    in_ring: int = 0
    host: int = 0
    shared: bool = False

    @property
    def on_card(self) -> int:
        return self.resident + self.ring

    @property
    def saved(self) -> int:
        return self.total - self.on_card


def resident_tower(tensors: Sequence[TowerTensor]) -> TowerPlan:
    """A tower that does not stream."""
    total = sum(t.nbytes for t in tensors)
    return TowerPlan(total, total)


def streamed_tower(
    tensors: Sequence[TowerTensor],
    vision: Mapping[str, Any] | None,
    *,
    slots: int = SLOTS,
    budget: int = 0,
) -> TowerPlan:
    """A tower that streams, with a budget of bytes that may stay on the card."""
    parts: dict[str, list[TowerTensor]] = {}
    for tensor in tensors:
        parts.setdefault(_root(tensor.name), []).append(tensor)
    units: list[TowerUnit] = []
    stem: list[TowerTensor] = []
    for some in parts.values():
        of_part, rest = find_units(some)
        units += of_part
        stem += rest
    kind = str((vision or {}).get("model_type") or "")
    if kind.startswith("qwen3_vl"):  # files have names in order, modules have mergers first
        units.sort(key=lambda unit: (".blocks." in unit.name, ".deepstack_" in unit.name))
    clean = kind in CLEAN
    total = sum(t.nbytes for t in tensors)
    candidates = _worth_streaming(units, slots)
    if not candidates:
        return resident_tower(tensors)
    stem_bytes = sum(t.nbytes for t in stem)
    on_demand = 0
    host = 0
    if clean and stem_bytes > budget:
        on_demand += stem_bytes
        host += sum(-(-t.nbytes // ALIGNMENT) * ALIGNMENT for t in stem)
    elif clean:
        budget -= stem_bytes
    if clean:
        for unit in units:
            if unit not in candidates and unit.nbytes > budget:
                on_demand, host = on_demand + unit.nbytes, host + unit.packed
            elif unit not in candidates:
                budget -= unit.nbytes
    stay = choose_residents([unit.nbytes for unit in candidates], budget)
    streamed = _worth_streaming([u for i, u in enumerate(candidates) if i not in stay], slots)
    if not streamed:
        return resident_tower(tensors)
    moved = sum(unit.nbytes for unit in streamed)
    slot = max(unit.packed for unit in streamed)
    return TowerPlan(
        total=total,
        resident=total - moved - on_demand,
        ring=slots * slot,
        streamed=moved,
        on_demand=on_demand,
        in_ring=sum(unit.nbytes for unit in streamed[:slots]),
        host=host + sum(unit.packed for unit in streamed),
        shared=not any(unit.split for unit in streamed),
    )


def _root(name: str) -> str:
    parts = name.removeprefix("model.").removeprefix("thinker.").split(".")
    return parts[0]


def _worth_streaming(units: Sequence[TowerUnit], slots: int) -> list[TowerUnit]:
    largest = choose_slot_bytes([unit.nbytes for unit in units], slots)
    return [unit for unit in units if unit.nbytes <= largest]


def choose_slot_bytes(sizes: Sequence[int], slots: int) -> int:
    """The size of a slot for which what streams exceeds the ring the most; 0 if it never does."""
    best = saved = 0
    for size in sorted(set(sizes)):
        gain = sum(other for other in sizes if other <= size) - slots * size
        if gain > saved:
            best, saved = size, gain
    return best


def choose_residents(sizes: Sequence[int], budget: int) -> set[int]:
    """The units that a budget of bytes keeps on the card, evenly spaced, then the largest."""
    if sum(sizes) <= budget:
        return set(range(len(sizes)))
    every = set(range(len(sizes)))
    chosen: set[int] = set()
    for count in range(1, len(sizes)):
        gaps = max(count - 1, 1)
        streamed = {i * (len(sizes) - 1) // gaps for i in range(count)}
        if sum(sizes[unit] for unit in every - streamed) <= budget:
            chosen = every - streamed
            break
    left = budget - sum(sizes[unit] for unit in chosen)
    for unit in sorted(every, key=lambda unit: -sizes[unit]):
        if unit not in chosen and sizes[unit] <= left:
            chosen.add(unit)
            left -= sizes[unit]
    return chosen
