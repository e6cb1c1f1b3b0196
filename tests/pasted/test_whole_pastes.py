"""The host, several commands in one paste, and any text at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.box.facts import Box
from rig.box.pasted import box_of_text
from tests.pasted.kit import GIB, MIB, TEXTS, box_of, cards_of, levels_of, text_of


def test_the_host() -> None:
    box = box_of("host")
    host = box.host
    assert (host.kernel, host.iommu, host.wsl) == ("6.11.0-21-generic", "passthrough", None)
    assert (host.shm_bytes, host.shm_free_bytes) == (63 * GIB, 62 * GIB)
    assert host.tmp_free_bytes == 16 * MIB
    assert (host.memory_bytes, host.memory_available_bytes) == (125 * GIB, 103 * GIB)
    assert (host.memlock_bytes, host.driver_version) == (8192 * 1024, "595.44.02")
    assert box.cards is None
    found = {(e.kind, e.where, e.code): e.count for e in host.kernel_events or ()}
    assert found["xid", "0000:21:00.0", 79] == 2
    assert {kind for kind, _, _ in found} == {"xid", "iommu-fault", "pcie-error"}
    assert ("pcie-error", "0000:00:03.1", None) in found


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("Linux b 5.15.167.4-microsoft-standard-WSL2 #1 SMP x86_64", "wsl", True),
        ("BOOT_IMAGE=/vmlinuz root=UUID=1 intel_iommu=off", "iommu", "off"),
        ("[0.1] iommu: Default domain type: Translated", "iommu", "translated"),
        ("MemTotal:       65536 kB", "memory_bytes", 65536 * 1024),
        ("max locked memory  (kbytes, -l) unlimited", "memlock_bytes", -1),
    ],
)
def test_single_lines_of_the_host(line: str, name: str, value: object) -> None:
    assert getattr(box_of_text(line, "x").host, name) == value


def test_df_in_blocks() -> None:
    host = box_of("df-small-shm").host
    assert (host.shm_bytes, host.shm_free_bytes) == (64 * MIB, 65524 * 1024)


def test_several_commands_in_one_paste() -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    matrix += "GPU0\t X \tPHB\t0-7\t0\nGPU1\tPHB\t X \t0-7\t0\n"
    table = text_of("smi-table")
    lspci = (
        "21:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)\n"
        "\tLnkSta:\tSpeed 16GT/s (ok), Width x8 (downgraded)\n"
    )
    box = box_of_text(
        f"{matrix}\n{lspci}\n{table}\n{(TEXTS / 'df-small-shm.txt').read_text()}", "x"
    )
    first, second = cards_of(box)
    assert (first.bus_id, first.link.width_now, first.numa_node) == ("0000:21:00.0", 8, 0)
    assert (second.bus_id, second.link.width_now) == ("0000:4b:00.0", None)
    assert levels_of(box) == {(0, 1): "PHB"}
    assert box.host.shm_bytes == 64 * MIB
    assert "recognised in the text: nvidia-smi, nvidia-smi topo, lspci, host" in box.notes


def test_our_own_report_is_read_whole() -> None:
    seen = box_of("smi-query", "topo-p2p")
    report = "# report\n\n## Box and checks as JSON\n\n```\n"
    report += json.dumps({"box": seen.model_dump(mode="json", exclude_none=True), "checks": []})
    assert box_of_text(report + "\n```\n", "x") == seen.model_copy(update={"source": "x"})
    broken = box_of_text(report[:-40], "x")
    assert broken.source == "x"


@pytest.mark.parametrize("text", ["", "hello", "GPU", "|\n||\n", "\x00\x1b[", "GPU0\nGPU0 X\n" * 3])
def test_what_is_not_recognised_is_unknown(text: str) -> None:
    box = box_of_text(text, "x")
    assert box.host.driver_version is None
    assert box.notes


def test_a_line_with_markdown_around_it() -> None:
    text = "```text\n" + text_of("smi-table").replace("\n", "\r\n") + "```\n"
    assert len(cards_of(box_of_text(text, "x"))) == 2


_ALL = "\n".join(path.read_text() for path in sorted(TEXTS.glob("*.txt")))
_LINE = st.sampled_from(_ALL.splitlines())
_CUT = st.builds(lambda line, a, b: line[a:b], _LINE, st.integers(0, 40), st.integers(0, 120))
_ODD = st.builds("{}{}{}".format, _LINE, st.sampled_from(["\t", " ", "9" * 30, "-1", "²"]), _LINE)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(_LINE, _CUT, _ODD, st.text(max_size=80)), max_size=40))
def test_no_text_makes_it_raise(lines: list[str]) -> None:
    box = box_of_text("\n".join(lines), "x")
    cards = box.cards or ()
    assert [card.index for card in cards] == sorted({card.index for card in cards})
    known = {card.index for card in cards}
    assert all({pair.first, pair.second} <= known for pair in box.pairs or ())
    Box.model_validate_json(box.model_dump_json())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(_ALL)), st.integers(0, 4000))
def test_no_piece_of_a_text_makes_it_raise(start: int, length: int) -> None:
    box_of_text(_ALL[start : start + length], "x")


@pytest.mark.parametrize(
    ("row", "total", "left"),
    [
        (
            "Mem:       131900000    2000000    9000   1000   8000000  125000000",
            131900000 << 10,
            125000000 << 10,
        ),
        (
            "Mem:           125Gi       20Gi     9Gi    1Gi      8Gi      103Gi",
            125 << 30,
            103 << 30,
        ),
        ("Mem:             125         20       9      1        8        103", None, None),
        ("Mem:          128806      20000    9000   1000     8000     103000", None, None),
        ("Mem:    135000000000 2000000000    9000   1000     8000 1030000000", None, None),
    ],
)
def test_free_in_a_unit_that_it_does_not_tell_is_unknown(
    row: str, total: int | None, left: int | None
) -> None:
    """125 of `free -g` are no 125 kB: nobody runs out of memory by a misread paste."""
    host = box_of_text(
        f"               total        used  free  shared  buff/cache  available\n{row}", "x"
    ).host
    assert (host.memory_bytes, host.memory_available_bytes) == (total, left)
