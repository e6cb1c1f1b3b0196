"""Slots, links, levels and bridges from faked trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.box.acs import redirects
from rig.box.chipset import Port, behind_chipset
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
from tests.box.fake_nvml import GIB, MIB, NvmlCard
from tests.box.fake_system import (
    AMD,
    INTEL,
    PLX,
    QEMU,
    FakeBox,
    FakeCard,
    FakePort,
    config_space,
    fake_box,
    four_3090s,
    two_desktop_3090s,
)

CARD = "0000:04:00.0"


def placed(box: FakeBox, address: str) -> Place:
    place = place_of(box.system, address)
    assert place is not None
    return place


def test_the_way_down_from_the_root_port(tmp_path: Path) -> None:
    box = fake_box(tmp_path, two_desktop_3090s())
    place = placed(box, CARD)
    assert place.root_bus == "pci0000:00"
    assert place.ports == ("0000:00:01.2", "0000:02:00.0", "0000:03:01.0")
    assert placed(box, "0000:0a:00.0").ports == ("0000:00:03.1",)
    assert place_of(box.system, "0000:99:00.0") is None


def test_only_nvidia_display_devices_are_cards(tmp_path: Path) -> None:
    box = fake_box(tmp_path, two_desktop_3090s())
    audio = "/sys/bus/pci/devices/0000:04:00.1"
    for name, text in (("vendor", "0x10de"), ("class", "0x040300")):
        box.write(f"{audio}/{name}", text)
    for name, text in (("vendor", "0x1002"), ("class", "0x030000")):
        box.write(f"/sys/bus/pci/devices/0000:05:00.0/{name}", text)
    assert nvidia_gpus(box.system) == (CARD, "0000:0a:00.0")


def test_drivers(tmp_path: Path) -> None:
    first, second = two_desktop_3090s()
    box = fake_box(tmp_path, [replace(first, driver="vfio-pci"), replace(second, driver=None)])
    assert driver_of(box.system, "0000:0a:00.0") == "vfio-pci"
    assert driver_of(box.system, CARD) is None


def test_a_link_and_the_slot_that_narrows_it(tmp_path: Path) -> None:
    box = fake_box(tmp_path, two_desktop_3090s())
    link = link_of(box.system, placed(box, CARD))
    assert (link.generation_now, link.generation_max) == (1, 4)
    assert (link.width_now, link.width_max, link.slot_width_max) == (4, 16, 4)
    assert link.slot_generation_max == 4
    assert link.behind_chipset is True
    assert link_of(box.system, placed(box, "0000:0a:00.0")).behind_chipset is False


@pytest.mark.parametrize("word", ["Unknown", "Unknown speed", "", "fast", "\0\xff", "7 GT/s"])
def test_a_speed_that_says_nothing_is_unknown(tmp_path: Path, word: str) -> None:
    box = fake_box(tmp_path, two_desktop_3090s())
    box.write(f"/sys/bus/pci/devices/{CARD}/current_link_speed", word)
    assert link_of(box.system, placed(box, CARD)).generation_now is None


@pytest.mark.parametrize("word", ["0", "255", "63", "", "x16", "-4"])
def test_a_width_that_says_nothing_is_unknown(tmp_path: Path, word: str) -> None:
    box = fake_box(tmp_path, two_desktop_3090s())
    box.write(f"/sys/bus/pci/devices/{CARD}/current_link_width", word)
    assert link_of(box.system, placed(box, CARD)).width_now is None


def test_a_virtual_machines_port_says_nothing_of_the_slot(tmp_path: Path) -> None:
    port = FakePort("0000:00:1c.0", vendor=QEMU, device=0x000C, width=1, acs=True)
    box = fake_box(tmp_path, [FakeCard(NvmlCard("0000:01:00.0"), (port,))])
    place = placed(box, "0000:01:00.0")
    link = link_of(box.system, place)
    assert (link.slot_width_max, link.slot_generation_max) == (None, None)
    assert link.behind_chipset is None
    assert bridges_of(box.system, [place])[0].acs_redirects is None


def test_a_card_right_on_a_virtual_bus(tmp_path: Path) -> None:
    box = fake_box(tmp_path, [FakeCard(NvmlCard("0000:00:06.0"))])
    place = placed(box, "0000:00:06.0")
    assert place.ports == ()
    assert link_of(box.system, place).behind_chipset is None
    assert bridges_of(box.system, [place]) == ()


def test_numa_nodes_of_cards(tmp_path: Path) -> None:
    box = fake_box(tmp_path, [replace(four_3090s()[0], numa_node=1), two_desktop_3090s()[1]])
    assert numa_node_of(box.system, "0000:21:00.0") == 1
    assert numa_node_of(box.system, CARD) == -1
    assert numa_node_of(box.system, "0000:99:00.0") is None


@pytest.mark.parametrize(
    ("size", "seen"), [(256 * MIB, 256 * MIB), (32 * GIB, 32 * GIB), (0, None)]
)
def test_bar1_from_the_resource_file(tmp_path: Path, size: int, seen: int | None) -> None:
    box = fake_box(tmp_path, [replace(four_3090s()[0], bar1=size)])
    assert bar1_of(box.system, "0000:21:00.0") == seen


def test_a_resource_file_of_another_shape_is_unknown(tmp_path: Path) -> None:
    box = fake_box(tmp_path, four_3090s(1))
    for text in ("", "0x0 0x1\n", "x y z\nx y z\n", "0 0 0\n0x10 0x5 0x0\n"):
        box.write("/sys/bus/pci/devices/0000:21:00.0/resource", text)
        assert bar1_of(box.system, "0000:21:00.0") is None


# Levels


def place(root_bus: str, *ports: str) -> Place:
    return Place("0000:ff:00.0", root_bus, ports)


@pytest.mark.parametrize(
    ("first", "second", "nodes", "level"),
    [
        (place("pci0000:00", "r", "u", "a"), place("pci0000:00", "r", "u", "b"), (0, 0), "PIX"),
        (place("pci0000:00", "r"), place("pci0000:00", "r"), (0, 0), "PIX"),
        (
            place("pci0000:00", "r", "u", "a", "v", "c"),
            place("pci0000:00", "r", "u", "b", "w", "d"),
            (0, 0),
            "PXB",
        ),
        (
            place("pci0000:00", "r", "u", "a"),
            place("pci0000:00", "r", "u", "b", "c"),
            (0, 0),
            "PXB",
        ),
        (place("pci0000:00", "r", "u", "a"), place("pci0000:00", "s"), (-1, -1), "PHB"),
        (place("pci0000:00", "r"), place("pci0000:40", "s"), (0, 0), "NODE"),
        (place("pci0000:00", "r"), place("pci0000:40", "s"), (0, 1), "SYS"),
        (place("pci0000:00", "r"), place("pci0000:40", "s"), (-1, -1), None),
        (place("pci0000:00", "r"), place("pci0000:40", "s"), (0, None), None),
        (Place("0000:01:00.0", None, ()), place("pci0000:00", "s"), (0, 0), None),
    ],
)
def test_levels_from_the_tree(
    first: Place, second: Place, nodes: tuple[int | None, int | None], level: str | None
) -> None:
    assert level_of(first, second, nodes) == level
    assert level_of(second, first, (nodes[1], nodes[0])) == level


# Chipset slots


@pytest.mark.parametrize(
    ("ports", "answer"),
    [
        ([("0000:00:03.1", AMD, 0x1483)], False),  # right on the processor
        ([("0000:00:01.2", AMD, 0x1483), ("0000:02:00.0", AMD, 0x57AD),
          ("0000:03:01.0", AMD, 0x57A3)], True),  # X570
        ([("0000:00:02.1", AMD, 0x14DB), ("0000:05:00.0", AMD, 0x43F4),
          ("0000:06:08.0", AMD, 0x43F5)], True),  # 600 series
        ([("0000:00:01.3", AMD, 0x1453), ("0000:03:00.2", AMD, 0x43C6),
          ("0000:20:00.0", AMD, 0x43C7)], True),  # 400 series
        ([("0000:00:01.1", AMD, 0x1483), ("0000:01:00.0", PLX, 0x8747),
          ("0000:02:08.0", PLX, 0x8747)], False),  # a switch card on the processor
        ([("0000:00:01.2", AMD, 0x1483), ("0000:02:00.0", AMD, 0x57AD),
          ("0000:03:01.0", AMD, 0x57A3), ("0000:04:00.0", PLX, 0x8747)], True),
        ([("0000:00:01.2", AMD, 0x1483), ("0000:02:00.0", AMD, 0x9999)], None),  # not in the list
        ([("0000:00:1c.4", INTEL, 0x7AB8)], True),
        ([("0000:80:1b.0", INTEL, 0x7F40)], True),
        ([("0000:00:1d.0", INTEL, 0xA330)], True),
        ([("0000:00:01.0", INTEL, 0x4C01)], False),
        ([("0000:16:02.0", INTEL, 0x347A)], False),
        ([("0000:00:10.0", INTEL, 0x1234)], None),
        ([("10000:00:1c.0", INTEL, 0x1234)], None),  # numbered by a drive controller
        ([("0000:00:01.0", QEMU, 0x000C)], None),
        ([("0000:00:01.0", None, None)], None),
        ([("0000:00:01.0", AMD, None)], None),
        ([], None),
    ],
)  # fmt: skip
def test_chipset_slots(
    ports: list[tuple[str, int | None, int | None]], answer: bool | None
) -> None:
    assert behind_chipset([Port(*port) for port in ports]) is answer


# ACS

AMD_PORT = Port("0000:00:01.1", AMD, 0x1483)


def test_acs_bits() -> None:
    assert redirects(config_space(True), AMD_PORT) is True
    assert redirects(config_space(False), AMD_PORT) is False
    assert redirects(config_space(None), AMD_PORT) is False
    space = bytearray(config_space(False))
    space[0x14E] = 0x01  # source validation alone sends nothing upstream
    assert redirects(bytes(space), AMD_PORT) is False
    for bit in (0x04, 0x08):
        space[0x14E] = bit
        assert redirects(bytes(space), AMD_PORT) is True


@pytest.mark.parametrize("size", [0, 64, 256, 4095])
def test_acs_without_root_is_unknown(size: int) -> None:
    assert redirects(config_space(True)[:size], AMD_PORT) is None


def test_acs_of_an_intel_chipset_port_is_unknown() -> None:
    assert redirects(config_space(True), Port("0000:00:1c.4", INTEL, 0xA114)) is None


def test_acs_of_a_port_that_does_not_answer_is_unknown() -> None:
    assert redirects(b"\xff" * 4096, AMD_PORT) is None


def test_acs_list_that_goes_round_is_unknown() -> None:
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert redirects(bytes(space), AMD_PORT) is None


@given(st.binary(max_size=64), st.binary(min_size=0, max_size=64))
def test_acs_of_any_bytes_ends(head: bytes, tail: bytes) -> None:
    space = (b"\0" * 256 + head + tail * 64).ljust(4096, b"\0")[:4096]
    assert redirects(space, AMD_PORT) in (True, False, None)


def test_bridges_once_each_in_order(tmp_path: Path) -> None:
    first, second = two_desktop_3090s()
    ports = (*second.ports[:2], replace(second.ports[2], acs=True, config_bytes=64))
    third = replace(second, nvml=NvmlCard("0000:05:00.0"), ports=(*second.ports[:2],
                    FakePort("0000:03:02.0", acs=True)))  # fmt: skip
    box = fake_box(tmp_path, [first, replace(second, ports=ports), third])
    places = [placed(box, a) for a in ("0000:0a:00.0", CARD, "0000:05:00.0")]
    assert [(b.bus_id, b.acs_redirects) for b in bridges_of(box.system, places)] == [
        ("0000:00:01.2", False),
        ("0000:00:03.1", False),
        ("0000:02:00.0", False),
        ("0000:03:01.0", None),
        ("0000:03:02.0", True),
    ]
