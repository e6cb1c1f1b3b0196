"""The matrices of nvidia-smi topo, and the bandwidth test."""

from __future__ import annotations

from rig.box.pasted import box_of_text
from tests.pasted.kit import box_of, cards_of, levels_of, pairs_of


def test_tabs_and_a_blank_numa_cell() -> None:
    box = box_of("topo-tabs-blank-numa")
    assert levels_of(box) == {(0, 1): "PIX", (0, 2): "SYS", (1, 2): "SYS"}
    assert [card.numa_node for card in cards_of(box)] == [None, 0, 1]
    assert {card.bus_id for card in cards_of(box)} == {"unknown"}


def test_spaces_network_cards_nvlink_and_quoting() -> None:
    box = box_of("topo-spaces-nvlink-nics")
    pairs = pairs_of(box)
    assert (pairs[0, 2].level, pairs[0, 2].nvlinks) == ("NV", 4)
    assert (pairs[1, 3].level, pairs[1, 3].nvlinks) == ("NV", 4)
    assert (pairs[0, 1].level, pairs[0, 1].nvlinks) == ("SYS", None)
    assert [card.numa_node for card in cards_of(box)] == [0, 1, 0, 1]
    assert len(pairs) == 6


def test_a_matrix_that_is_cut_names_what_is_missing() -> None:
    box = box_of("topo-cut")
    assert len(cards_of(box)) == 5
    levels = levels_of(box)
    assert (levels[0, 1], levels[0, 4], levels[1, 2]) == ("NODE", "SYS", "NODE")
    assert (levels[2, 3], levels[3, 4]) == (None, None)
    assert [card.numa_node for card in cards_of(box)] == [0, 0, None, None, None]
    assert any("the rows of GPU3, GPU4 are missing" in note for note in box.notes)
    assert any("the row of GPU2" in note for note in box.notes)


def test_a_wrapped_matrix() -> None:
    box = box_of("topo-wrapped")
    levels = levels_of(box)
    assert (levels[0, 1], levels[2, 3], levels[4, 5]) == ("PXB", "PXB", "PIX")
    assert levels[0, 5] == "NODE"
    assert len(levels) == 15


def test_indented_with_numa_in_words_and_both_matrices() -> None:
    box = box_of("topo-numa-words-indented")
    pairs = pairs_of(box)
    assert (pairs[0, 1].level, pairs[0, 1].p2p, pairs[0, 1].p2p_why) == ("PIX", "granted", "OK")
    assert (pairs[0, 2].level, pairs[0, 2].p2p, pairs[0, 2].p2p_why) == ("SYS", "refused", "NS")
    assert [card.numa_node for card in cards_of(box)] == [0, 0, 1, 1]


def test_a_header_that_was_retyped() -> None:
    box = box_of("topo-header-retyped")
    assert levels_of(box) == {(0, 1): "PHB"}
    assert [card.numa_node for card in cards_of(box)] == [0, 0]


def test_a_matrix_without_its_header() -> None:
    box = box_of_text("GPU0 X NV4\nGPU1 NV4 X\n", "x")
    assert levels_of(box) == {(0, 1): "NV"}
    assert any("header" in note for note in box.notes)


def test_one_card_in_wsl_without_any_affinity() -> None:
    box = box_of("topo-wsl-one-card")
    [card] = cards_of(box)
    assert (card.index, card.numa_node) == (0, None)
    assert box.pairs is None


def test_what_the_driver_grants() -> None:
    pairs = pairs_of(box_of("topo-p2p"))
    assert (pairs[0, 1].p2p, pairs[0, 1].p2p_why) == ("granted", "OK")
    assert (pairs[0, 2].p2p, pairs[0, 2].p2p_why) == ("refused", "GNS")
    assert (pairs[1, 2].p2p, pairs[1, 2].p2p_why) == (None, None)  # U is unknown


def test_one_refusal_among_matrices_is_a_refusal_but_not_one_of_atomics() -> None:
    granted = "GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n"
    refused = granted.replace("OK", "NS")
    both = box_of_text(f"nvidia-smi topo -p2p r\n{granted}nvidia-smi topo -p2p w\n{refused}", "x")
    assert pairs_of(both)[0, 1].p2p == "refused"
    atomics = box_of_text(
        f"nvidia-smi topo -p2p r\n{granted}nvidia-smi topo -p2p a\n{refused}", "x"
    )
    assert pairs_of(atomics)[0, 1].p2p == "granted"


def test_a_matrix_that_contradicts_itself_is_unknown() -> None:
    box = box_of_text("GPU0 GPU1\nGPU0 X PHB\nGPU1 SYS X\n", "x")
    assert levels_of(box) == {(0, 1): None}
    assert any("PHB and SYS" in note for note in box.notes)


def test_a_row_that_does_not_fit_its_header_is_left_out() -> None:
    box = box_of_text("GPU0 GPU1 GPU2\nGPU0 X PHB SYS\nGPU1 X PHB SYS\n", "x")
    assert levels_of(box) == {(0, 1): "PHB", (0, 2): "SYS", (1, 2): None}
    assert any("row of GPU1" in note and "does not fit" in note for note in box.notes)


def test_the_bandwidth_test_numbers_cards_in_its_own_order() -> None:
    box = box_of("p2p-bandwidth-test")
    assert [card.name for card in cards_of(box)] == [
        "NVIDIA GeForce RTX 4090",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA GeForce RTX 5090",
    ]
    assert {key: pair.p2p for key, pair in pairs_of(box).items()} == {
        (0, 1): "granted",
        (0, 2): "refused",
        (1, 2): "refused",
    }
