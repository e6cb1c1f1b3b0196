"""The cards that a plan counts with: as they were seen, or as the rig file says they are."""

from __future__ import annotations

from dataclasses import dataclass

from rig.box.facts import Box
from rig.box.rig_file import Rig

GIB = 2**30

VISIBLE = 23.56 / 24
"""The part of a card's memory that CUDA gives out: vLLM's own message says 23.56 GiB of a 24 GiB
card. The driver keeps the rest."""

GB_PER_S = {1: 2.8, 2: 5.7, 3: 12.0, 4: 25.0, 5: 53.5, 6: 107.0}
"""Billions of bytes per second over 16 lanes, from pinned memory to a card, by PCIe generation.
Those of 3 to 5 are the middle of what others have measured (scripts/model_towers.py); 1, 2 and 6
are a half or twice their neighbour."""


@dataclass(frozen=True)
class CardRoom:
    """Bytes of one card: `total` and `free` as CUDA counts them. `seen`: by looking at it."""

    index: int
    total: int
    free: int
    seen: bool


def rooms(rig: Rig, box: Box | None) -> list[CardRoom]:
    """The cards of a box, or, where nobody could look, those of the rig file."""
    size = int(rig.cards.vram_gib * GIB)
    if box is None or not box.cards:
        whole = int(size * VISIBLE)
        return [CardRoom(index, whole, whole, False) for index in range(rig.cards.count)]
    found = []
    for card in box.cards:
        total = int((card.memory_bytes or size) * VISIBLE)
        free = total if card.memory_free_bytes is None else min(card.memory_free_bytes, total)
        found.append(CardRoom(card.index, total, free, card.memory_free_bytes is not None))
    return found


def link_gb_per_s(rig: Rig, box: Box | None) -> float:
    """Billions of bytes per second to a card, modelled: of the slowest link of the box."""
    widths: list[int] = [rig.link.width]
    if box is not None and box.cards:
        widths = [card.link.width_now or rig.link.width for card in box.cards]
    return GB_PER_S[rig.link.generation] * min(widths) / 16
