"""nvidia-smi, as a table and as a long list, and report lines."""

from __future__ import annotations

import re

from rig.box.facts import CardProcess
from rig.box.pasted import box_of_text
from rig.box.pasted.smi_csv import _COLUMNS, _PLACES
from rig.doctor.table import CHECKS
from tests.pasted.kit import MIB, box_of, cards_of, text_of


def test_the_table() -> None:
    box = box_of("smi-table")
    assert box.source == "a paste"
    assert (box.host.driver_version, box.host.driver_cuda) == ("595.44.02", (13, 1))
    first, second = cards_of(box)
    assert (first.index, first.bus_id, first.name) == (0, "0000:21:00.0", "NVIDIA GeForce RTX 3090")
    assert (first.memory_bytes, first.memory_free_bytes) == (24576 * MIB, 24572 * MIB)
    assert (first.persistence, first.display_active) == (True, False)
    assert (first.power_limit_w, first.utilisation_percent, first.temperature_c) == (280, 0, 31)
    assert (second.persistence, second.display_active) == (False, True)
    assert (second.power_limit_w, second.utilisation_percent) == (350, 87)
    assert first.processes == ()
    assert second.processes == (
        CardProcess(pid=2210, name="/usr/lib/xorg/Xorg", memory_bytes=310 * MIB),
        CardProcess(pid=40155, name="python3", memory_bytes=8690 * MIB),
    )
    assert first.link.width_now is None  # the table does not say


def test_a_table_that_is_cut_is_unknown_there() -> None:
    box = box_of("smi-table-cut")
    assert [card.memory_bytes for card in cards_of(box)] == [24576 * MIB, None]
    assert cards_of(box)[1].processes is None
    assert any("second line of GPU 1" in note for note in box.notes)


def test_no_card_is_not_the_same_as_no_driver() -> None:
    assert box_of_text("$ nvidia-smi\nNo devices were found\n", "x").cards == ()
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    box = box_of_text(failed, "x")
    assert box.cards is None
    assert any("could not reach the driver" in note for note in box.notes)


def test_the_long_list() -> None:
    box = box_of("smi-query")
    assert (box.host.driver_version, box.host.driver_cuda) == ("590.10.01", (13, 0))
    first, second = cards_of(box)
    # Numbered by address, in whatever order the text has them.
    assert [card.bus_id for card in cards_of(box)] == ["0000:01:00.0", "0000:c1:00.0"]
    assert (first.bar1_bytes, first.memory_bytes, first.processes) == (256 * MIB, None, None)
    assert (second.bar1_bytes, second.memory_bytes) == (32768 * MIB, 24564 * MIB)
    assert second.memory_free_bytes == 24050 * MIB
    assert second.uuid == "GPU-0a0b0c0d-1111-2222-3333-444455556666"
    link = second.link
    assert (link.generation_now, link.generation_max, link.slot_generation_max) == (1, 4, 3)
    assert (link.width_now, link.width_max) == (8, 16)
    assert (second.power_limit_w, second.power_default_w, second.power_max_w) == (320, 450, 500)
    assert (second.graphics_clock_mhz, second.graphics_clock_max_mhz) == (210, 3105)
    assert (second.utilisation_percent, second.temperature_c, second.mig) == (3, 41, None)
    assert second.processes == (
        CardProcess(pid=771, name="python3", memory_bytes=1500 * MIB),
        CardProcess(pid=772, name="Xwayland", memory_bytes=None),
    )


def test_the_long_list_without_its_indentation() -> None:
    text = text_of("smi-query")
    flat = "\n".join(line.strip() for line in text.splitlines())
    assert box_of_text(flat, "x").cards == box_of("smi-query").cards


def test_a_long_list_that_is_cut_does_not_lose_a_card() -> None:
    text = text_of("smi-query")
    box = box_of_text(text[: text.index("GPU 00000000:01")], "x")
    assert len(cards_of(box)) == 2
    assert {card.bus_id for card in cards_of(box)} == {"unknown"}  # which of the two is c1?
    assert any("2 GPUs are attached, 1 are shown" in note for note in box.notes)


def test_a_bar1_without_its_card_is_not_given_to_one() -> None:
    box = box_of_text("    BAR1 Memory Usage\n        Total      : 256 MiB\n", "x")
    assert box.cards is None
    assert any("a BAR1 of 256 MiB" in note for note in box.notes)


def test_lines_of_a_report() -> None:
    box = box_of("club-report")
    first, second = cards_of(box)
    assert (first.bus_id, first.memory_bytes) == ("0000:06:00.0", 10240 * MIB)
    assert (first.link.width_now, first.link.width_max, first.link.generation_max) == (8, 16, 4)
    assert (first.power_limit_w, first.power_default_w, first.power_max_w) == (220, 320, 350)
    assert (first.persistence, second.persistence) == (False, True)
    assert box.host.driver_version == "600.11.01"


def test_the_lists_that_the_doctor_itself_asks_for() -> None:
    box = box_of_text(
        "$ nvidia-smi -L\n"
        "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-0a0b0c0d-1111-2222-3333-444455556666)\n"
        "GPU 1: NVIDIA GeForce RTX 4090 (UUID: GPU-1a0b0c0d-1111-2222-3333-444455556666)\n"
        "\n"
        "index, compute_cap, memory.total [MiB], memory.used [MiB], pcie.link.width.current\n"
        "0, 8.6, 24576 MiB, 412 MiB, 4\n"
        "1, 8.9, 24564 MiB, [N/A], 16\n"
        "thank you, all\n",
        "a paste",
    )
    first, second = cards_of(box)
    assert (first.name, first.compute_capability) == ("NVIDIA GeForce RTX 3090", (8, 6))
    assert (first.memory_bytes, first.memory_free_bytes) == (24576 * MIB, (24576 - 412) * MIB)
    assert (first.link.width_now, second.link.width_now) == (4, 16)
    assert (second.compute_capability, second.memory_free_bytes) == ((8, 9), None)
    assert second.uuid == "GPU-1a0b0c0d-1111-2222-3333-444455556666"


def test_a_line_with_commas_is_no_list_of_cards() -> None:
    box = box_of_text("index, chapter, page\n0, 1, 2\nname, uuid\nx, y\n", "a paste")
    assert box.cards is None


def test_every_list_that_a_next_step_asks_for_can_be_pasted() -> None:
    """Whoever helps from afar asks for these: what comes back must be read."""
    asked = {
        name
        for check in CHECKS
        for query in re.findall(r"--query-gpu=(\S+)", check.look)
        for name in query.split(",")
    }
    assert asked
    assert asked <= {*_COLUMNS, *_PLACES}
