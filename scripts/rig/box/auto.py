"""The rig file that a box would have: `--rig auto`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, cast, get_args

from rig.box.facts import Box, Card
from rig.box.rig_file import CardsTable, LinkTable, Rig
from rig.errors import RigError

GIB = 1 << 30
_Width = Literal[1, 2, 4, 8, 16]


def rig_of_box(box: Box) -> Rig:
    """A rig made from what was seen, sized by the smallest card and the slowest slot.

    `description` says what had to be assumed.

    Raises:
        RigError: no cards were seen, or not how large they are.
    """
    cards = box.cards
    if not cards:
        seen = "no NVIDIA driver could be asked" if cards is None else "the driver shows no card"
        raise RigError(
            f"`--rig auto` finds no cards: {seen}",
            where="; ".join(box.notes) or box.source,
            next_step="`./rig doctor` says more; `--rig NAME` names a box, `--rehearse` needs none",
        )
    sizes = [card.memory_bytes for card in cards if card.memory_bytes is not None]
    capabilities = [c.compute_capability for c in cards if c.compute_capability is not None]
    if len(sizes) < len(cards) or not capabilities:
        raise RigError(
            "`--rig auto` cannot tell the cards' memory or compute capability",
            where="; ".join(box.notes) or box.source,
            next_step="copy the nearest file of scripts/rigs and name it: --rig FILE.toml",
        )
    names = Counter(card.name or "unknown card" for card in cards)
    assumed: list[str] = []
    link = LinkTable(
        generation=_generation(cards, assumed),
        width=_width(cards, assumed),
    )
    kinds = ", ".join(f"{count}x {name}" for name, count in names.most_common())
    nodes = {card.numa_node for card in cards if card.numa_node is not None and card.numa_node >= 0}
    return Rig(
        name="auto",
        description=". ".join([f"Made from {box.source}: {kinds}", *assumed]),
        cards=CardsTable(
            count=len(cards),
            name=_slowest(cards).name or "unknown card",
            vram_gib=min(sizes) / GIB,
            compute_capability=min(capabilities),
            nvlink_pairs=nvlink_pairs(box),
        ),
        link=link,
        numa_nodes=max(1, len(nodes)),
    )


def nvlink_pairs(box: Box) -> tuple[tuple[int, int], ...]:
    """The pairs of cards that an NVLink bridge joins."""
    return tuple((p.first, p.second) for p in box.pairs or () if p.level == "NV")


def _slowest(cards: Sequence[Card]) -> Card:
    """The card that the others wait for: least memory, then oldest."""
    return min(cards, key=lambda card: (card.memory_bytes or 0, card.compute_capability or (0, 0)))


def _generation(cards: Sequence[Card], assumed: list[str]) -> int:
    """What the slowest link can do; the generation now is low at idle and says nothing."""
    found = [
        one
        for card in cards
        for one in (card.link.generation_max, card.link.slot_generation_max)
        if one is not None
    ]
    if any(card.link.generation_max is None for card in cards):
        assumed.append("Not every card tells its PCIe generation: 3 is assumed for those")
        found.append(3)
    return min(found)


def _width(cards: Sequence[Card], assumed: list[str]) -> _Width:
    """What the narrowest link can do: the card's lanes, the slot's, and those that are up now."""
    found = [
        one
        for card in cards
        for one in (card.link.width_max, card.link.slot_width_max, card.link.width_now)
        if one is not None
    ]
    if any(card.link.width_now is None and card.link.width_max is None for card in cards):
        assumed.append("Not every card tells its lanes: 4 are assumed for those")
        found.append(4)
    return cast("_Width", max(w for w in get_args(_Width) if w <= min(found)))
