"""The tree that `lspci -t` and `lspci -tv` draw: which bridges stand above each device.

A branch begins below the "+" or the backslash that it is drawn from, so columns tell the parent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rig.box.pasted.draft import Draft, put

_ROOT = re.compile(r"-?\[([0-9a-f]{4}):([0-9a-f]{2})(?:-[0-9a-f]{2})?\]", re.IGNORECASE)
_DEVICE = re.compile(r"([0-9a-f]{2}\.[0-7])(?:-\[([0-9a-f]{2})(?:-[0-9a-f]{2})?\])?", re.IGNORECASE)


@dataclass(frozen=True)
class _Bus:
    domain: str
    bus: str
    above: tuple[str, ...]


@dataclass(frozen=True)
class _Leaf:
    address: str
    above: tuple[str, ...]
    text: str


def read_lspci_tree(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such a tree; what it says of cards goes into the draft.

    Without -v no device has a name: then only cards whose addresses another text names are known.
    """
    leaves = _leaves(lines)
    known = {*draft.addresses.values(), *draft.by_address, *draft.bus_cards}
    for leaf in leaves:
        named = "NVIDIA" in leaf.text and leaf.address.endswith(".0")
        # The card's own USB and audio functions are NVIDIA's, too, but not function 0.
        if not named and leaf.address not in known:
            continue
        if named:
            name = re.search(r"\[([^\[\]]{2,60})\]", leaf.text)
            draft.bus_cards.setdefault(leaf.address, f"NVIDIA {name[1]}" if name else None)
        put(draft.at(leaf.address), bridges=leaf.above)
        for bridge in leaf.above:
            draft.bridges.setdefault(bridge, None)
        if len(leaf.above) > 1:
            others = sum(
                other.above[:2] == leaf.above[:2] and other.address[:-2] != leaf.address[:-2]
                for other in leaves
            )
            draft.note(
                f"{leaf.address} hangs on a switch below {leaf.above[0]} with {others} other "
                "functions: a chipset, whose uplink they share, or a PCIe switch"
            )
    if leaves and not any(leaf.address in {*known, *draft.bus_cards} for leaf in leaves):
        draft.note("lspci -t names no device and no other text gives the cards' addresses")
    return bool(leaves)


def _leaves(lines: Sequence[str]) -> list[_Leaf]:
    found: list[_Leaf] = []
    branches: dict[int, _Bus] = {}
    for raw in lines:
        line = raw.expandtabs()
        root = _ROOT.search(line)
        if root and set(line[: root.start()]) <= set(" -+\\|"):
            position, bus = root.end(), _Bus(root[1].lower(), root[2].lower(), ())
            branches.clear()
        else:
            position = next((i for i, c in enumerate(line) if c not in " |"), -1)
            if position < 0 or line[position] not in "+\\" or position not in branches:
                continue
            bus = branches[position]
        _walk(line, position, bus, branches, found)
    return found


def _walk(
    line: str, position: int, bus: _Bus, branches: dict[int, _Bus], found: list[_Leaf]
) -> None:
    """Follow one line to its end, from bridge to bridge."""
    while position < len(line):
        if line[position] in "+\\":
            branches[position] = bus
            position += 1
        elif line[position] == "-":
            position += 1
        else:
            device = _DEVICE.match(line, position)
            if not device:
                return
            address = f"{bus.domain}:{bus.bus}:{device[1].lower()}"
            if not device[2]:
                found.append(_Leaf(address, bus.above, line[device.end() :].strip()))
                return
            bus = _Bus(bus.domain, device[2].lower(), (*bus.above, address))
            position = device.end()
