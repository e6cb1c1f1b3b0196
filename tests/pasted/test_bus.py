"""lspci: links, bridges, the tree."""

from __future__ import annotations

from rig.box.pasted import box_of_text
from tests.pasted.kit import GIB, MIB, box_of, cards_of, text_of


def test_links_bridges_and_the_chipset() -> None:
    box = box_of("lspci-vvv")
    slow, fast = cards_of(box)
    assert (slow.bus_id, slow.name) == ("0000:05:00.0", "NVIDIA GeForce RTX 3090")
    assert (slow.link.generation_now, slow.link.width_now) == (1, 4)
    assert (slow.link.generation_max, slow.link.width_max) == (4, 16)
    assert (slow.link.slot_generation_max, slow.link.slot_width_max) == (3, 2)
    assert (slow.bar1_bytes, slow.numa_node) == (256 * MIB, 0)
    assert slow.bridges == ("0000:00:01.1", "0000:01:00.0", "0000:02:01.0")
    assert slow.link.behind_chipset is True
    assert (fast.link.width_now, fast.link.slot_width_max) == (16, 16)
    assert (fast.bar1_bytes, fast.bridges) == (32 * GIB, ("0000:00:03.1",))
    assert fast.link.behind_chipset is False
    assert box.bridges is not None
    acs = {bridge.bus_id: bridge.acs_redirects for bridge in box.bridges}
    assert acs == {
        "0000:00:01.1": True,
        "0000:00:03.1": False,
        "0000:01:00.0": None,
        "0000:02:01.0": None,
    }


def test_lspci_without_root_leaves_the_link_unknown() -> None:
    box = box_of("lspci-nnk")
    [card] = cards_of(box)
    assert (card.bus_id, card.name) == ("0000:2d:00.0", "NVIDIA GeForce RTX 4090")
    assert (card.link.width_now, card.bridges, card.link.behind_chipset) == (None, None, None)
    assert any("without root" in note for note in box.notes)


def test_a_tree_with_names() -> None:
    [card] = cards_of(box_of("lspci-tree-names"))
    assert (card.bus_id, card.name) == ("0000:01:00.0", "NVIDIA GeForce RTX 4070")
    assert card.bridges == ("0000:00:01.0",)


def test_a_tree_without_names_needs_the_addresses_of_another_text() -> None:
    alone = box_of("lspci-tree")
    assert alone.cards is None
    assert any("names no device" in note for note in alone.notes)
    both = box_of("lspci-tree", "smi-table")
    assert [card.bridges for card in cards_of(both)] == [("0000:00:03.1",), ("0000:40:01.1",)]


def test_two_switches_drawn_at_one_column_are_two() -> None:
    tree = """
-[0000:00]-+-01.1-[02-07]----00.0-[03-07]--+-00.0-[04]----00.0
           |                               \\-01.0-[05]----00.0
           \\-01.2-[12-17]----00.0-[13-17]--+-00.0-[14]----00.0
                                           \\-01.0-[15]----00.0
"""
    table = text_of("smi-table").replace(":21:", ":05:").replace(":4B:", ":15:")
    assert [card.bridges for card in cards_of(box_of_text(table + tree, "x"))] == [
        ("0000:00:01.1", "0000:02:00.0", "0000:03:01.0"),
        ("0000:00:01.2", "0000:12:00.0", "0000:13:01.0"),
    ]


def test_a_card_below_a_switch_is_noted() -> None:
    table = text_of("smi-table").replace(":21:", ":05:")
    box = box_of_text(table + text_of("lspci-tree"), "x")
    first = cards_of(box)[0]
    assert first.bridges == ("0000:00:01.3", "0000:02:00.0", "0000:03:01.0")
    assert first.link.behind_chipset is None  # a chipset or a switch: the tree does not say
    assert any("0000:05:00.0 hangs on a switch" in note for note in box.notes)
