"""Make a Box of what was found: numbers and addresses brought together."""

from __future__ import annotations

from typing import Any

from rig.box.facts import Box, Bridge, Card, Host, Link, Pair
from rig.box.pasted.draft import UNKNOWN_ADDRESS, Draft
from rig.box.pasted.topo import settle_grants


def box_of_draft(draft: Draft, source: str) -> Box:
    """Everything as a Box. What no text has said is None."""
    settle_grants(draft)
    _number_by_address(draft)
    indices = sorted(
        {*draft.by_index, *draft.addresses, *(i for pair in draft.pairs for i in pair)}
        | set(range(draft.attached))
    )
    known = bool(indices) or draft.looked_at_cards
    unnamed = [str(index) for index in indices if index not in draft.addresses]
    if unnamed:
        draft.note(f"the PCI address of {_cards(unnamed)} is not in the text")
    return Box(
        source=source,
        cards=tuple(_card(draft, index) for index in indices) if known else None,
        pairs=_pairs(draft, indices) if draft.pairs else None,
        bridges=tuple(
            Bridge(bus_id=address, acs_redirects=acs)
            for address, acs in sorted(draft.bridges.items())
        )
        or None,
        host=Host(**draft.host),
        notes=tuple(draft.notes),
    )


def _cards(indices: list[str]) -> str:
    return f"card {indices[0]}" if len(indices) == 1 else f"cards {', '.join(indices)}"


def _number_by_address(draft: Draft) -> None:
    """Give addresses that have no number one, where the order of all addresses tells it."""
    numbered = set(draft.addresses.values())
    shown = sorted({*draft.by_address, *draft.bus_cards})
    loose = [address for address in shown if address not in numbered]
    if not loose:
        return
    count = max([draft.attached, *(index + 1 for index in draft.by_index)], default=0)
    every = sorted({*shown, *numbered})
    orderly = all(draft.addresses.get(i, every[i]) == every[i] for i in range(len(every)))
    if orderly and len(every) >= count:
        for index, address in enumerate(every):
            draft.addresses.setdefault(index, address)
        if 0 < count < len(every):
            draft.note(f"the texts show {len(every)} cards, and one of them only {count}")
        return
    draft.note(f"which cards are at {', '.join(loose)} is not known: not all addresses are shown")


def _card(draft: Draft, index: int) -> Card:
    address = draft.addresses.get(index)
    facts: dict[str, Any] = dict(draft.by_index.get(index, {}))
    for name, value in draft.by_address.get(address or "", {}).items():
        if facts.get(name) is None:
            facts[name] = value
    if address and facts.get("name") is None:
        facts["name"] = draft.bus_cards.get(address)
    link = {
        name.removeprefix("link_"): facts.pop(name)
        for name in list(facts)
        if name.startswith("link_")
    }
    return Card(index=index, bus_id=address or UNKNOWN_ADDRESS, link=Link(**link), **facts)


def _pairs(draft: Draft, indices: list[int]) -> tuple[Pair, ...]:
    return tuple(
        Pair(first=first, second=second, **draft.pairs.get((first, second), {}))
        for first in indices
        for second in indices
        if first < second
    )
