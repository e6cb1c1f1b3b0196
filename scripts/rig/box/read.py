"""Read one box: NVML for the cards, sysfs for their slots and links, /proc for the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rig.box.facts import Box, Card, Link, Pair
from rig.box.host import read_host
from rig.box.iommu import iommu_mode
from rig.box.nvml import NvmlFacts, read_nvml
from rig.box.nvml_child import LIMIT_S, read_nvml_in_child
from rig.box.pci import (
    Place,
    bar1_of,
    bridges_of,
    driver_of,
    level_of,
    link_of,
    numa_node_of,
    nvidia_gpus,
    place_of,
)
from rig.box.system import System

THIS_MACHINE = "this machine"


def read_box(
    system: System | None = None, nvml: Any = None, *, nvml_limit_s: float = LIMIT_S
) -> Box:
    """All that can be seen of a box, without root and without changing anything.

    Never raises for what is missing: that is None, with a sentence in `notes`. CUDA_VISIBLE_DEVICES
    is not applied: every card is listed (rig.box.visible says which of them a value selects).

    Args:
        system: where /proc, /sys and the rest are; this machine if None.
        nvml: a stand-in for `pynvml`, asked in this process. If None, the real one is asked in a
            child process, so that a driver that hangs costs `nvml_limit_s` and no more.
        nvml_limit_s: seconds for the child.
    """
    here = system or System()
    host = read_host(here)
    # A virtual machine's ports are made up, some in the image of real ones.
    real_ports = host.virtual_machine is not True
    told = read_nvml(nvml) if nvml is not None else read_nvml_in_child(limit_s=nvml_limit_s)
    on_bus = nvidia_gpus(here)
    addresses = [card.bus_id for card in told.cards or ()] or list(on_bus or ())
    places = {address: place_of(here, address) for address in addresses}
    known = [place for place in places.values() if place is not None]
    cards = (
        None
        if told.cards is None
        else tuple(_with_slot(here, card, real_ports) for card in told.cards)
    )
    return Box(
        source=THIS_MACHINE,
        cards=cards,
        pairs=None if cards is None else _pairs_with_levels(told.pairs, cards, places),
        bridges=None if on_bus is None else bridges_of(here, known, real_ports=real_ports),
        host=host.model_copy(
            update={
                "driver_version": told.driver_version or host.driver_version,
                "driver_cuda": told.driver_cuda,
                "iommu": iommu_mode(here, addresses),
            }
        ),
        notes=(*told.notes, *_notes(here, told, on_bus, places, real_ports)),
    )


def _with_slot(system: System, card: Card, real_ports: bool) -> Card:
    """A card with what sysfs knows of its slot. Where both tell the same thing NVML is believed,
    but for the card's own greatest width: NVML's is already cut to the slot's."""
    place = place_of(system, card.bus_id)
    if place is None:
        return card
    seen, told = link_of(system, place, real_ports=real_ports), card.link
    link = Link(
        generation_now=told.generation_now or seen.generation_now,
        generation_max=told.generation_max or seen.generation_max,
        width_now=told.width_now or seen.width_now,
        width_max=seen.width_max or told.width_max,
        slot_generation_max=seen.slot_generation_max,
        slot_width_max=seen.slot_width_max,
        behind_chipset=seen.behind_chipset,
    )
    return card.model_copy(
        update={
            "link": link,
            "numa_node": numa_node_of(system, card.bus_id),
            "bridges": place.ports,
            "bar1_bytes": card.bar1_bytes or bar1_of(system, card.bus_id),
        }
    )


def _pairs_with_levels(
    pairs: tuple[Pair, ...] | None, cards: Sequence[Card], places: dict[str, Place | None]
) -> tuple[Pair, ...] | None:
    """The pairs, with the level from the tree where NVML did not tell it."""
    if pairs is None:
        return None
    filled: list[Pair] = []
    for pair in pairs:
        first, second = cards[pair.first], cards[pair.second]
        here, there = places[first.bus_id], places[second.bus_id]
        if pair.level is None and here is not None and there is not None:
            level = level_of(here, there, (first.numa_node, second.numa_node))
            pair = pair.model_copy(update={"level": level})
        filled.append(pair)
    return tuple(filled)


def _notes(
    system: System,
    told: NvmlFacts,
    on_bus: tuple[str, ...] | None,
    places: dict[str, Place | None],
    real_ports: bool,
) -> list[str]:
    notes: list[str] = []
    if not real_ports and any(place is not None and place.ports for place in places.values()):
        notes.append("this is a virtual machine: its PCIe ports say nothing of slots and ACS")
    if on_bus is None:
        notes.append("sysfs shows no PCI bus: slots, bridges and NUMA nodes are unknown")
    driven = {card.bus_id for card in told.cards or ()}
    for address in on_bus or ():
        if address not in driven:
            driver = driver_of(system, address)
            has = f"its kernel driver is {driver}" if driver else "no kernel driver has it"
            notes.append(f"NVML does not show the NVIDIA card at {address}: {has}")
    unplaced = [address for address, place in places.items() if place is None]
    if unplaced and on_bus is not None:
        notes.append(f"sysfs does not show {', '.join(unplaced)}: slot and bridges are unknown")
    return notes
