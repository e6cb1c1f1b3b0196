"""The blocks and large linears of a tower, from the names and shapes of its weights.

The rules are those of the streamer's own `units.py`, which sees modules: the members of the
outermost lists of blocks, and linears elsewhere that are large. Here a list of blocks is a name
with two or more numbers below it, each with modules of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rig.memory.shards import TowerTensor

STEM_SHARE = 20
LINEAR_SHARE = 8
ALIGNMENT = 256
"""Bytes. What each weight's place in a packed buffer is rounded up to."""


@dataclass(frozen=True)
class TowerUnit:
    """A block or a linear: `nbytes` of weights, `packed` as they lie in one buffer."""

    name: str
    nbytes: int
    packed: int
    split: bool


def unit_of(name: str, tensors: Iterable[TowerTensor]) -> TowerUnit:
    """A unit of these weights."""
    some = list(tensors)
    return TowerUnit(
        name,
        nbytes=sum(t.nbytes for t in some),
        packed=sum(-(-t.nbytes // ALIGNMENT) * ALIGNMENT for t in some),
        split=any(t.split for t in some),
    )


def find_units(tensors: Sequence[TowerTensor]) -> tuple[list[TowerUnit], list[TowerTensor]]:
    """Find the units of one tower, in the order of its weights, and the rest, its stem."""
    total = sum(t.nbytes for t in tensors)
    lists = [
        blocks
        for blocks in _block_lists(tensors).values()
        if sum(unit.nbytes for unit in blocks.values()) * STEM_SHARE >= total
    ]
    largest = max(
        (max(u.nbytes for u in blocks.values()) for blocks in [_heaviest(lists)] if blocks),
        default=0,
    )
    kept = {
        name: unit
        for blocks in lists
        if max(u.nbytes for u in blocks.values()) <= largest
        for name, unit in blocks.items()
    }
    enough = largest / LINEAR_SHARE if kept else total / STEM_SHARE
    for name, members in _linears(tensors).items():
        if not any(name.startswith(f"{block}.") for block in kept):
            unit = unit_of(name, members)
            if unit.nbytes >= enough:
                kept[name] = unit
    stem = [t for t in tensors if not any(t.name.startswith(f"{name}.") for name in kept)]
    order = {t.name: place for place, t in enumerate(tensors)}
    return sorted(kept.values(), key=lambda unit: _first_place(unit.name, order)), stem


def _heaviest(lists: Sequence[dict[str, TowerUnit]]) -> dict[str, TowerUnit]:
    return max(lists, key=lambda blocks: sum(u.nbytes for u in blocks.values()), default={})


def _first_place(name: str, order: dict[str, int]) -> int:
    return min(place for weight, place in order.items() if weight.startswith(f"{name}."))


def _block_lists(tensors: Sequence[TowerTensor]) -> dict[str, dict[str, TowerUnit]]:
    """The outermost lists of blocks, by name, each block's unit by name."""
    members: dict[str, dict[str, list[TowerTensor]]] = {}
    for tensor in tensors:
        parts = tensor.name.split(".")
        for place, part in enumerate(parts[:-1]):
            # A member has children of its own: something lies between it and its weights.
            if part.isdigit() and len(parts) - place > 2:
                where, block = ".".join(parts[:place]), ".".join(parts[: place + 1])
                members.setdefault(where, {}).setdefault(block, []).append(tensor)
                break
    return {
        where: {name: unit_of(name, some) for name, some in blocks.items()}
        for where, blocks in members.items()
        if len(blocks) > 1
    }


def _linears(tensors: Sequence[TowerTensor]) -> dict[str, list[TowerTensor]]:
    """Modules with a matrix of their own, but for embeddings and norms."""
    found: dict[str, list[TowerTensor]] = {}
    matrices = {
        t.name.rpartition(".")[0]
        for t in tensors
        if len(t.shape) == 2 and t.name.endswith(".weight") and "embed" not in t.name.split(".")[-2]
    }
    for tensor in tensors:
        if (module := tensor.name.rpartition(".")[0]) in matrices:
            found.setdefault(module, []).append(tensor)
    return found
