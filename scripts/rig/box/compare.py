"""Where a box is not what its rig file says."""

from __future__ import annotations

from rig.box.auto import GIB, nvlink_pairs
from rig.box.facts import Box, Card
from rig.box.rig_file import Rig

# Drivers keep some memory of a "24 GiB" card to themselves; a wrong size is off by far more.
_MEMORY_TOLERANCE = 0.06


def disagreements(rig: Rig, box: Box) -> list[str]:
    """Sentences on what the box has and the rig file does not say, or the other way round.

    What was not seen is no disagreement. Wider links than the file's are none either.
    """
    if box.cards is None:
        return []
    said: list[str] = []
    if len(box.cards) != rig.cards.count:
        said.append(f"the rig file says {rig.cards.count} cards, the box has {len(box.cards)}")
    for card in box.cards:
        said += [f"card {card.index} ({card.bus_id}) {fault}" for fault in _of_card(rig, card)]
    if box.pairs is not None:
        there = set(nvlink_pairs(box))
        meant = {(min(pair), max(pair)) for pair in rig.cards.nvlink_pairs}
        # Only a counted zero is a bridge that is not there.
        absent = {(p.first, p.second) for p in box.pairs if p.nvlinks == 0}
        said += [f"cards {a} and {b} should be joined by NVLink" for a, b in sorted(meant & absent)]
        said += [
            f"cards {a} and {b} are joined by NVLink, which the rig file does not say"
            for a, b in sorted(there - meant)
        ]
    nodes = {c.numa_node for c in box.cards if c.numa_node is not None and c.numa_node >= 0}
    if nodes and len(nodes) != rig.numa_nodes:
        said.append(
            f"the rig file says {rig.numa_nodes} NUMA nodes, the cards hang on {len(nodes)}"
        )
    return said


def _of_card(rig: Rig, card: Card) -> list[str]:
    meant, link = rig.cards, card.link
    faults: list[str] = []
    if card.name is not None and _model(card.name) != _model(meant.name):
        faults.append(f"is a {card.name}, not a {meant.name}")
    if card.memory_bytes is not None:
        has = card.memory_bytes / GIB
        if abs(has - meant.vram_gib) > _MEMORY_TOLERANCE * meant.vram_gib:
            faults.append(f"has {has:.1f} GiB, not {meant.vram_gib:g}")
    if card.compute_capability not in (None, meant.compute_capability):
        faults.append(
            f"has compute capability {_dotted(card.compute_capability)}, "
            f"not {_dotted(meant.compute_capability)}"
        )
    if link.width_now is not None and link.width_now < rig.link.width:
        faults.append(f"runs on {link.width_now} lanes, not {rig.link.width}")
    able = [g for g in (link.generation_max, link.slot_generation_max) if g is not None]
    if able and min(able) < rig.link.generation:
        faults.append(f"can do PCIe {min(able)} in its slot, not {rig.link.generation}")
    return faults


def _dotted(capability: tuple[int, int] | None) -> str:
    return "unknown" if capability is None else ".".join(map(str, capability))


def _model(name: str) -> str:
    """A card's name without its makers' words: drivers differ in whether they say them."""
    words = name.lower().replace("-", " ").split()
    return " ".join(word for word in words if word not in ("nvidia", "geforce"))
