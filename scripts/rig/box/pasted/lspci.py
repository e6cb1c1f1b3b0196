"""`lspci`, with -v to -vvv, -nn, -k in any mixture: links, BAR1, ACS, and the bridges above a card.

Without root it prints "<access denied>" where the capabilities would stand: those stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rig.box.chipset import Port, behind_chipset
from rig.box.pasted.draft import Draft, address_of, put, size_of, whole

_DEVICE = re.compile(
    r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(\S.{2,300})$", re.IGNORECASE
)
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)
_NAME = re.compile(r"NVIDIA Corporation\s+.{0,60}?\[([^\[\]]{2,60})\]")
_CARD = re.compile(r"^(?:VGA compatible controller|3D controller|Display controller)\b")
_LINK = re.compile(r"Lnk(Cap|Sta):.{0,60}?Speed ([\d.]{1,5})GT/s.{0,40}?Width x(\d{1,2})")
_ACS = re.compile(r"ACSCtl:.*ReqRedir([+-])")
_BAR = re.compile(r"Region (\d): Memory at .{0,80}\[size=(\d{1,6}[KMGT]?)\]")
_NUMA = re.compile(r"^\s*NUMA node: (-?\d{1,3})")
_BUSES = re.compile(r"primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
_CHIPSET_NAMES = ("Chipset", "Matisse Switch", "PCH PCI", "PCH PCIe")


@dataclass
class _Device:
    address: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    buses: tuple[int, int] | None = None  # secondary, subordinate
    acs: bool | None = None
    denied: bool = False

    @property
    def is_card(self) -> bool:
        kind = re.sub(r"\s*\[[0-9a-f]{4}\]:?|:", "", self.text, count=1)
        return bool(_CARD.match(kind)) and "NVIDIA" in self.text

    @property
    def port(self) -> Port:
        ids = _IDS.findall(self.text)
        vendor, device = (int(part, 16) for part in ids[-1]) if ids else (None, None)
        return Port(self.address, vendor, device)


def read_lspci(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such a list; what it says goes into the draft."""
    devices = _devices(lines)
    cards = [device for device in devices.values() if device.is_card]
    bridges = {a: d for a, d in devices.items() if d.buses is not None}
    for address, bridge in bridges.items():
        draft.bridges.setdefault(address, None)
        if bridge.acs is not None:
            draft.bridges[address] = bridge.acs
    for card in cards:
        facts = draft.at(card.address)
        name = _NAME.search(card.text)
        draft.bus_cards.setdefault(card.address, f"NVIDIA {name[1]}" if name else None)
        put(facts, **{("link_" + k if k in _LINK_FACTS else k): v for k, v in card.facts.items()})
        if above := _above(card.address, bridges):
            _with_bridges(facts, above)
        if card.denied:
            draft.note("lspci was run without root: links, BAR1 and ACS are not all shown")
    return bool(cards or bridges)


_LINK_FACTS = ("generation_now", "generation_max", "width_now", "width_max")


def _devices(lines: Sequence[str]) -> dict[str, _Device]:
    found: dict[str, _Device] = {}
    current: _Device | None = None
    for line in lines:
        if match := _DEVICE.match(line.strip()):
            address = address_of(match[1])
            current = found.setdefault(address, _Device(address, match[2])) if address else None
        elif current is not None:
            _detail(current, line)
    return found


def _detail(device: _Device, line: str) -> None:
    if link := _LINK.search(line):
        when = "max" if link[1] == "Cap" else "now"
        put(
            device.facts,
            **{
                f"generation_{when}": _GENERATIONS.get(link[2].removesuffix(".0")),
                f"width_{when}": whole(link[3], 32) or None,
            },
        )
    elif acs := _ACS.search(line):
        device.acs = acs[1] == "+"
    elif (bar := _BAR.search(line)) and bar[1] == "1":
        put(device.facts, bar1_bytes=size_of(bar[2]))
    elif numa := _NUMA.match(line):
        put(device.facts, numa_node=int(numa[1]))
    elif buses := _BUSES.search(line):
        device.buses = int(buses[2], 16), int(buses[3], 16)
    elif "<access denied>" in line:
        device.denied = True


def _above(address: str, bridges: dict[str, _Device]) -> list[_Device]:
    """The bridges of a card, from the root port down: each one's range of buses holds its bus."""
    domain, bus = address[:4], int(address[5:7], 16)
    found = [
        bridge
        for bridge in bridges.values()
        if bridge.buses
        and bridge.address[:4] == domain
        and bridge.buses[0] <= bus <= bridge.buses[1]
    ]
    return sorted(found, key=lambda bridge: bridge.buses or (0, 0))


def _with_bridges(facts: dict[str, Any], above: list[_Device]) -> None:
    put(facts, bridges=tuple(bridge.address for bridge in above))
    slot = above[-1].facts
    put(
        facts,
        link_slot_generation_max=slot.get("generation_max"),
        link_slot_width_max=slot.get("width_max"),
    )
    if any(word in bridge.text for bridge in above for word in _CHIPSET_NAMES):
        put(facts, link_behind_chipset=True)
    else:
        put(facts, link_behind_chipset=behind_chipset([bridge.port for bridge in above]))
