"""The PCI tree as sysfs shows it: where a card hangs, through which ports, on which links.

Nothing here needs root, but for ACS (acs.py). What cannot be read is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rig.box.acs import redirects
from rig.box.chipset import Port, behind_chipset
from rig.box.facts import Bridge, Level, Link
from rig.box.system import System, whole_number

DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5}
_GENERATIONS |= {"32": 5, "64.0": 6, "64": 6}
_NVIDIA = 0x10DE
_VIRTUAL_PORT_VENDORS = (0x1B36, 0x15AD)  # QEMU's and VMware's ports: their links are made up
_BAR1 = 1  # NVIDIA's BAR 0 is registers; the window into the card's memory is the next one


@dataclass(frozen=True)
class Place:
    """Where one device hangs.

    Args:
        bus_id: its address.
        root_bus: the host bridge above it, e.g. "pci0000:00".
        ports: the bridges from the root port down to the one above it.
    """

    bus_id: str
    root_bus: str | None
    ports: tuple[str, ...]


def nvidia_gpus(system: System) -> tuple[str, ...] | None:
    """The addresses of NVIDIA's display devices, whatever driver they have; None: no sysfs."""
    names = system.names(DEVICES)
    if names is None:
        return None
    return tuple(
        name
        for name in names
        if _ADDRESS.fullmatch(name)
        and _hex(system, name, "vendor") == _NVIDIA
        and (_hex(system, name, "class") or 0) >> 16 == 0x03
    )


def driver_of(system: System, bus_id: str) -> str | None:
    """The kernel driver that has a device, e.g. "nvidia" or "vfio-pci"."""
    try:
        return system.path(f"{DEVICES}/{bus_id}/driver").readlink().name
    except OSError:
        return None


def place_of(system: System, bus_id: str) -> Place | None:
    """Where a device hangs, or None if sysfs does not show it."""
    link = system.path(f"{DEVICES}/{bus_id}")
    if not link.exists():
        return None
    parts = link.resolve().parts
    root_bus = next((part for part in parts if _ROOT_BUS.fullmatch(part)), None)
    above = tuple(part for part in parts[:-1] if _ADDRESS.fullmatch(part))
    return Place(bus_id=bus_id, root_bus=root_bus, ports=above)


def link_of(system: System, place: Place, *, real_ports: bool = True) -> Link:
    """The link of a card and what the port above it can do.

    Args:
        real_ports: false in a virtual machine, whose ports are made up: only the card's own link
            says anything there.
    """
    card = place.bus_id
    ports = [_port(system, address) for address in place.ports] if real_ports else []
    slot_generation = slot_width = None
    if ports and ports[-1].vendor not in (None, *_VIRTUAL_PORT_VENDORS):
        slot_generation = _generation(system, place.ports[-1], "max_link_speed")
        slot_width = _width(system, place.ports[-1], "max_link_width")
    return Link(
        generation_now=_generation(system, card, "current_link_speed"),
        generation_max=_generation(system, card, "max_link_speed"),
        width_now=_width(system, card, "current_link_width"),
        width_max=_width(system, card, "max_link_width"),
        slot_generation_max=slot_generation,
        slot_width_max=slot_width,
        behind_chipset=behind_chipset(ports),
    )


def numa_node_of(system: System, bus_id: str) -> int | None:
    """The memory node of a device; -1 when the platform names none."""
    return whole_number(system.text(f"{DEVICES}/{bus_id}/numa_node"))


def bar1_of(system: System, bus_id: str) -> int | None:
    """The size of a card's window into its memory, from the `resource` file. None: not assigned."""
    lines = (system.text(f"{DEVICES}/{bus_id}/resource") or "").splitlines()
    fields = lines[_BAR1].split() if len(lines) > _BAR1 else []
    if len(fields) != 3:
        return None
    first, last = whole_number(fields[0], 16), whole_number(fields[1], 16)
    if not first or not last or last <= first:
        return None
    return last - first + 1


def bridges_of(
    system: System, places: Sequence[Place], *, real_ports: bool = True
) -> tuple[Bridge, ...]:
    """The ports above some devices, each once, in the order of their addresses."""
    addresses = sorted({port for place in places for port in place.ports})
    return tuple(
        Bridge(bus_id=address, acs_redirects=_redirects(system, address) if real_ports else None)
        for address in addresses
    )


def level_of(first: Place, second: Place, nodes: tuple[int | None, int | None]) -> Level | None:
    """How two devices are joined, in the words of `nvidia-smi topo -m`.

    A switch is an upstream port with downstream ports below it: two devices that part below one
    upstream port have one switch between them (PIX), else several (PXB). Under one host bridge
    without a common port it is PHB; beyond that the memory nodes decide, if both are named.
    """
    if first.root_bus is None or second.root_bus is None:
        return None
    if first.root_bus == second.root_bus:
        common = 0
        for one, other in zip(first.ports, second.ports, strict=False):
            if one != other:
                break
            common += 1
        if not common:
            return "PHB"
        longest = max(len(first.ports), len(second.ports)) - common
        return "PIX" if longest <= 1 else "PXB"
    here, there = nodes
    if here is None or there is None or here < 0 or there < 0:
        return None
    return "NODE" if here == there else "SYS"


def _port(system: System, address: str) -> Port:
    return Port(
        address=address,
        vendor=_hex(system, address, "vendor"),
        device=_hex(system, address, "device"),
    )


def _redirects(system: System, address: str) -> bool | None:
    port = _port(system, address)
    if port.vendor in (None, *_VIRTUAL_PORT_VENDORS):
        return None  # what a virtual port says is not what the real ones do
    try:
        config = system.path(f"{DEVICES}/{address}/config").read_bytes()
    except OSError:
        return None
    return redirects(config, port)


def _hex(system: System, address: str, name: str) -> int | None:
    return whole_number(system.text(f"{DEVICES}/{address}/{name}"), 16)


def _generation(system: System, address: str, name: str) -> int | None:
    """From "8.0 GT/s PCIe"; None for "Unknown"."""
    words = (system.text(f"{DEVICES}/{address}/{name}") or "").split()
    return _GENERATIONS.get(words[0]) if words else None


def _width(system: System, address: str, name: str) -> int | None:
    """Lanes; 0 and 255 are the kernel's words for "no link" and "unknown"."""
    width = whole_number(system.text(f"{DEVICES}/{address}/{name}"))
    return width if width in (1, 2, 4, 8, 12, 16, 32) else None
