"""`--rig auto`, and where a box differs from its rig file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.box.facts import Box, Card, Link, Pair
from rig.box.read import read_box
from rig.box.rig_file import Rig
from rig.box.rigs import disagreements, find_rig, rig_of_box
from rig.errors import RigError
from tests.box.fake_nvml import GIB, MIB, FakeNvml
from tests.box.fake_system import FakeCard, fake_box, four_3090s, two_desktop_3090s


def box_of(tmp_path: Path, cards: tuple[FakeCard, ...], **nvml: object) -> Box:
    library = FakeNvml([card.nvml for card in cards], **nvml)  # type: ignore[arg-type]
    made = fake_box(tmp_path, cards, nvml=library)
    return read_box(made.system, made.nvml)


def changed(card: FakeCard, **fields: object) -> FakeCard:
    return replace(card, nvml=replace(card.nvml, **fields))  # type: ignore[arg-type]


def test_four_alike(tmp_path: Path) -> None:
    rig = rig_of_box(box_of(tmp_path, four_3090s()))
    assert rig.cards.name == "NVIDIA GeForce RTX 3090"
    assert (rig.cards.count, rig.cards.vram_gib) == (4, 24.0)
    assert rig.cards.compute_capability == (8, 6)
    assert (rig.link.generation, rig.link.width, rig.numa_nodes) == (4, 16, 1)
    assert rig.description == "Made from this machine: 4x NVIDIA GeForce RTX 3090"


def test_an_idle_link_is_not_taken_for_a_slow_one(tmp_path: Path) -> None:
    box = box_of(tmp_path, four_3090s(2))
    assert {card.link.generation_now for card in box.cards or ()} == {1}
    assert rig_of_box(box).link.generation == 4


def test_the_narrowest_slot_counts(tmp_path: Path) -> None:
    rig = rig_of_box(box_of(tmp_path, two_desktop_3090s()))
    assert (rig.link.generation, rig.link.width) == (4, 4)


def test_mixed_cards_are_sized_by_the_smallest(tmp_path: Path) -> None:
    first, second, third = four_3090s(3)
    large = changed(third, name="NVIDIA GeForce RTX 5090", memory=32607 * MIB, capability=(12, 0))
    rig = rig_of_box(box_of(tmp_path, (large, first, second)))
    assert rig.cards.name == "NVIDIA GeForce RTX 3090"
    assert rig.cards.vram_gib == 24.0
    assert rig.cards.compute_capability == (8, 6)
    assert "2x NVIDIA GeForce RTX 3090, 1x NVIDIA GeForce RTX 5090" in rig.description


def test_nvlink_partners_come_from_the_matrix_not_from_neighbours(tmp_path: Path) -> None:
    box = box_of(tmp_path, four_3090s(), nvlinks={(0, 2): 4, (1, 3): 4})
    assert rig_of_box(box).cards.nvlink_pairs == ((0, 2), (1, 3))


def test_numa_nodes_that_cards_hang_on(tmp_path: Path) -> None:
    cards = tuple(replace(card, numa_node=i // 2) for i, card in enumerate(four_3090s()))
    assert rig_of_box(box_of(tmp_path, cards)).numa_nodes == 2


def test_what_is_unknown_is_assumed_low_and_said() -> None:
    card = Card(index=0, bus_id="0000:01:00.0", memory_bytes=24 * GIB, compute_capability=(8, 6))
    rig = rig_of_box(Box(source="a text", cards=(card,)))
    assert (rig.link.generation, rig.link.width) == (3, 4)
    assert "3 is assumed" in rig.description
    assert "4 are assumed" in rig.description
    assert rig.cards.name == "unknown card"


@pytest.mark.parametrize("width", [12, 32])
def test_odd_widths_become_the_next_smaller(width: int) -> None:
    card = Card(
        index=0,
        bus_id="0000:01:00.0",
        memory_bytes=24 * GIB,
        compute_capability=(8, 6),
        link=Link(width_now=width, width_max=width, generation_max=4),
    )
    assert rig_of_box(Box(source="x", cards=(card,))).link.width == min(16, width // 8 * 8)


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        (None, "no NVIDIA driver could be asked"),
        ((), "the driver shows no card"),
        ((Card(index=0, bus_id="0000:01:00.0"),), "memory or compute capability"),
        (
            (Card(index=0, bus_id="0000:01:00.0", memory_bytes=GIB),),
            "memory or compute capability",
        ),
    ],
)
def test_without_cards_there_is_no_auto(cards: tuple[Card, ...] | None, said: str) -> None:
    with pytest.raises(RigError, match=said) as caught:
        rig_of_box(Box(source="x", cards=cards, notes=("the reason",)))
    assert caught.value.where == "the reason"


# Disagreements


def test_a_box_agrees_with_its_own_auto_rig(tmp_path: Path) -> None:
    box = box_of(tmp_path, two_desktop_3090s(), nvlinks={(0, 1): 4})
    assert disagreements(rig_of_box(box), box) == []


def test_a_box_as_its_file_says(tmp_path: Path) -> None:
    assert disagreements(find_rig("4x3090"), box_of(tmp_path, four_3090s())) == []


def test_drivers_that_keep_a_little_memory_are_no_disagreement(tmp_path: Path) -> None:
    cards = tuple(changed(card, memory=24576 * MIB - 450 * MIB) for card in four_3090s())
    assert disagreements(find_rig("4x3090"), box_of(tmp_path, cards)) == []


def rig(**cards: object) -> Rig:
    whole = find_rig("2x3090")
    return whole.model_copy(update={"cards": whole.cards.model_copy(update=cards)})


def test_each_disagreement(tmp_path: Path) -> None:
    first, second = four_3090s(2)
    other = changed(second, name="NVIDIA GeForce RTX 4090", capability=(8, 9), memory=48 * GIB)
    said = disagreements(find_rig("2x3090"), box_of(tmp_path, (first, other)))
    assert said == [
        "card 1 (0000:41:00.0) is a NVIDIA GeForce RTX 4090, not a NVIDIA GeForce RTX 3090",
        "card 1 (0000:41:00.0) has 48.0 GiB, not 24",
        "card 1 (0000:41:00.0) has compute capability 8.9, not 8.6",
    ]


def test_the_count_and_the_makers_words(tmp_path: Path) -> None:
    box = box_of(tmp_path, four_3090s())
    assert disagreements(rig(name="RTX 3090"), box) == ["the rig file says 2 cards, the box has 4"]


def test_links(tmp_path: Path) -> None:
    said = disagreements(find_rig("2x3090"), box_of(tmp_path, two_desktop_3090s()))
    assert said == ["card 0 (0000:04:00.0) runs on 4 lanes, not 8"]
    port = replace(four_3090s(1)[0].ports[0], generation=3)
    cards = (replace(four_3090s(2)[0], ports=(port,)), four_3090s(2)[1])
    said = disagreements(find_rig("2x3090"), box_of(tmp_path / "b", cards))
    assert said == ["card 0 (0000:21:00.0) can do PCIe 3 in its slot, not 4"]


def test_nvlinks_both_ways_round(tmp_path: Path) -> None:
    plain = box_of(tmp_path, four_3090s(2))
    assert disagreements(find_rig("2x3090-nvlink"), plain) == [
        "cards 0 and 1 should be joined by NVLink"
    ]
    joined = box_of(tmp_path / "b", four_3090s(2), nvlinks={(0, 1): 4})
    assert disagreements(find_rig("2x3090"), joined) == [
        "cards 0 and 1 are joined by NVLink, which the rig file does not say"
    ]
    turned = rig(nvlink_pairs=((1, 0),))
    assert disagreements(turned, joined) == []


def test_numa(tmp_path: Path) -> None:
    cards = tuple(replace(card, numa_node=i) for i, card in enumerate(four_3090s(2)))
    said = disagreements(find_rig("2x3090"), box_of(tmp_path, cards))
    assert said == ["the rig file says 1 NUMA nodes, the cards hang on 2"]


def test_what_was_not_seen_is_no_disagreement() -> None:
    assert disagreements(find_rig("4x3090"), Box(source="x")) == []
    cards = tuple(Card(index=i, bus_id=f"0000:0{i}:00.0") for i in range(2))
    pairs = None
    assert disagreements(find_rig("2x3090-nvlink"), Box(source="x", cards=cards, pairs=pairs)) == []
    for level in (None, "PHB"):
        box = Box(source="x", cards=cards, pairs=(Pair(first=0, second=1, level=level),))
        assert disagreements(find_rig("2x3090-nvlink"), box) == []
