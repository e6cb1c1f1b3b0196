"""The model of streaming: rows worked out by hand, and what the tables and the plot show."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import model_towers
from model_towers import BLOCKS, LINKS, PATCHES, RESIDENT, STREAMED, Link, main, streamed_ms
from rig.errors import RigError


def _times(copy: float, compute: float) -> dict[str, float]:
    return {p.name: p.encode_ms(copy, compute) for p in (RESIDENT, *STREAMED)}


def test_where_compute_takes_longer_than_a_copy_only_the_first_copy_is_seen() -> None:
    # 27 blocks of 4 ms; copies of 3 ms. Two cold slots: 3 ms, and then all is there in time.
    assert _times(copy=3, compute=4) == {
        "resident": 27 * 4,
        "warm ring of 3": 27 * 4,
        "2 cold slots": 3 + 27 * 4,
        "1 slot": 27 * 4 + 26 * 3,
        "serial bulk copy": 27 * 7,
        "whole-tower copy": 27 * 7,
    }


def test_where_copies_take_longer_the_bus_sets_the_pace() -> None:
    # Copies of 10 ms; blocks of 1 ms. Warm: the bus begins after one block, has 24 copies to make,
    # and the last block computes after the last of them. Cold: the second copy follows the first
    # at once; from the third on, each waits for a slot that was free long before.
    assert _times(copy=10, compute=1) == {
        "resident": 27,
        "warm ring of 3": 1 + 24 * 10 + 1,
        "2 cold slots": 27 * 10 + 1,
        "1 slot": 27 + 26 * 10,
        "serial bulk copy": 27 * 11,
        "whole-tower copy": 27 * 11,
    }


def test_a_ring_for_the_whole_tower_copies_nothing_when_warm() -> None:
    assert streamed_ms(10, 1, BLOCKS, warm=True) == BLOCKS
    assert streamed_ms(10, 1, BLOCKS, warm=False) == BLOCKS * 10 + 1


def test_the_published_serial_copy_is_met() -> None:
    # 879 MiB over PCIe 4.0 x16 in 37 ms, on top of 296 ms: 333 ms were measured.
    link = next(link for link in LINKS if link.name == "4.0 x16")
    copies = link.copy_ms() / model_towers.BLOCK_MIB * 879
    assert 296 + copies == pytest.approx(333, abs=1)


@pytest.mark.parametrize(
    "name, gb_per_s, copies_ms",
    # 27 x 29 MiB are 821.0 million bytes.
    [("5.0 x16", 53.5, 15.35), ("4.0 x8", 12.5, 65.68), ("3.0 x4", 3.0, 273.68)],
)
def test_links_copy_at_their_share_of_lanes(name: str, gb_per_s: float, copies_ms: float) -> None:
    link = next(link for link in LINKS if link.name == name)
    assert link.gb_per_s == gb_per_s
    assert BLOCKS * link.copy_ms() == pytest.approx(copies_ms, abs=0.01)


def test_from_the_stated_patches_on_a_warm_ring_costs_nothing() -> None:
    for link in LINKS:
        compute = model_towers.hidden_from(link) * model_towers.MS_PER_PATCH / BLOCKS
        assert compute == pytest.approx(link.copy_ms())
        times = _times(link.copy_ms(), compute * 1.001)
        assert times["warm ring of 3"] == pytest.approx(times["resident"])
        times = _times(link.copy_ms(), compute * 0.9)
        assert times["warm ring of 3"] > times["resident"] * 1.01


def test_the_tables_have_a_row_for_each_size_on_each_link(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("A model, nothing here is measured.")
    assert all(f"PCIe {link.name}, " in shown for link in LINKS)
    first = [line.split() for line in shown.splitlines()]
    assert sum(words[:1] == ["8192"] for words in first) == len(LINKS)
    # 4.0 x16 at 8192 patches: 1.216 ms a copy, 10.963 ms a block.
    row = "8192 296.0 296.0 (1.00) 297.2 (1.00) 327.6 (1.11) 328.8 (1.11) 328.8 (1.11)"
    assert row.split() in first
    assert (PATCHES[0], PATCHES[-1]) == (64, 16384)


def test_the_plot_is_an_image_with_a_line_for_each_placement(tmp_path: Path) -> None:
    assert main(["--svg", str(tmp_path / "plot.svg")]) == 0
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    lines = root.findall(f"{space}polyline")
    assert len(lines) == 3 * 4
    assert all(len(line.attrib["points"].split()) > 10 for line in lines)
    assert "A model, not a measurement" in "".join(root.itertext())


def test_a_plot_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="name a file in a folder that exists"):
        main(["--svg", str(tmp_path / "none" / "plot.svg")])


def test_the_plot_in_the_docs_is_the_one_that_the_script_draws() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    shown = [Link("5.0 x16", 53.5), Link("4.0 x16", 25.0), Link("3.0 x4", 3.0)]
    assert (docs / "streaming-model.svg").read_text(encoding="utf-8") == model_towers.plot(shown)
