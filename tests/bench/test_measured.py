"""`scripts/bench-towers` from end to end on the CPU, with small towers."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import SCRIPT, TOWERS, Run, bench, read_json

pytestmark = pytest.mark.engine

STREAMED = {
    "streamed-3",
    "streamed-3-budget",
    "streamed-2",
    "streamed-1",
    "streamed-3-cold",
    "streamed-2-cold",
}
OURS = STREAMED | {"resident", "resident-again", "serial-copy", "whole-copy"}
OTHERS = {"uva", "accelerate", "diffusers-block", "diffusers-leaf"}
PATCHES = [16, 64]


@dataclass(frozen=True)
class Measured:
    """A run of everything, and its files."""

    run: Run
    figures: dict[str, Any]
    plot: Path


@pytest.fixture(scope="module")
def measured(engine_python: Path, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("figures")
    run = bench(
        engine_python,
        [
            *("--tiny", "--device", "cpu", "--tree", tree, "--repeats", 3, "--budget-seconds", 400),
            *("--json", folder / "a.json", "--svg", folder / "a.svg"),
        ],
    )
    assert run.code == 0, run.err
    return Measured(run, read_json(folder / "a.json"), folder / "a.svg")


def rows(figures: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """(tower, placement) -> row."""
    return {(t["name"], row["key"]): row for t in figures["towers"] for row in t["rows"]}


def test_every_tower_has_every_row(measured: Measured) -> None:
    towers = {"qwen3-vl-8b", "qwen2.5-vl-7b", "siglip-so400m"}
    found = rows(measured.figures)
    assert set(found) == {(tower, key) for tower in towers for key in OURS | OTHERS}
    assert measured.figures["skipped_for_time"] == 0
    for row in found.values():
        assert [cell["patches"] for cell in row["cells"]] == PATCHES


def test_all_placements_of_ours_equal_the_resident_one(measured: Measured) -> None:
    for (tower, key), row in rows(measured.figures).items():
        if key in OURS:
            for cell in row["cells"]:
                assert (cell["status"], cell["equal"]) == ("ok", True), (tower, key, cell)
                assert cell["ms"] > 0
                assert cell["least_ms"] <= cell["ms"] <= cell["most_ms"]


def test_what_cannot_be_measured_says_why(measured: Measured) -> None:
    for (_, key), row in rows(measured.figures).items():
        if key == "uva":
            assert row["status"] == "not measured: a CPU has no bus to read over"
        for cell in row["cells"]:
            assert cell["status"] == "ok" or cell["ms"] is None
            assert cell["status"]


def test_streamed_rows_hold_what_they_must(measured: Measured) -> None:
    """A ring and the stem on the device, each streamed byte once on the host."""
    for tower in measured.figures["towers"]:
        by_key = {row["key"]: row for row in tower["rows"]}
        stem = by_key["resident"]["rest_bytes"] - tower["streamable_bytes"]
        for slots in (1, 2, 3):
            row = by_key[f"streamed-{slots}"]
            ring = row["rest_bytes"] - stem
            # A slot holds the largest unit, its tensors aligned to 256 bytes.
            assert slots * tower["largest_unit_bytes"] <= ring
            assert ring <= slots * (tower["largest_unit_bytes"] + 20 * 256)
            assert row["host_bytes"] == row["copied_bytes"] >= tower["streamable_bytes"]
        budget = by_key["streamed-3-budget"]
        assert budget["host_bytes"] < by_key["streamed-3"]["host_bytes"]
        assert all(cell["wait_ms"] is not None for key in STREAMED for cell in by_key[key]["cells"])


def test_header_says_what_the_figures_are_worth(measured: Measured) -> None:
    out = measured.run.out
    assert out.startswith("no GPU: times mean nothing, this shows that it works end to end\n")
    assert measured.figures["times_mean_something"] is False
    for label in ("card", "driver", "torch", "link", "host memory", "copy rate", "streamer"):
        assert f"\n{label} " in out
    assert "pageable, exact" in out


def test_plot_has_a_line_for_each_row_that_was_measured(measured: Measured) -> None:
    root = ElementTree.parse(measured.plot).getroot()
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    wanted = [
        row
        for (_, key), row in rows(measured.figures).items()
        if key != "resident" and row["cells"][0]["status"] == "ok"
    ]
    assert len(lines) == len(wanted) >= 3 * (len(OURS) - 1)
    assert "times mean nothing" in measured.plot.read_text()


def test_no_time_is_said_and_not_silent(engine_python: Path, tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    run = bench(
        engine_python, ["--tiny", "--tree", tree, "--budget-seconds", 0.001, "--json", path]
    )
    assert run.code == 0, run.err
    figures = read_json(path)
    cells = [cell for row in rows(figures).values() for cell in row["cells"]]
    assert len(cells) == 3 * len(OURS | OTHERS) * len(PATCHES) == figures["skipped_for_time"]
    assert {cell["status"] for cell in cells} == {"skipped: time"}
    assert f"{len(cells)} figures skipped for time" in run.out


def test_unknown_placement(engine_python: Path, tree: Path) -> None:
    run = bench(engine_python, ["--tiny", "--tree", tree, "--placement", "ssd"])
    assert run.code == 2
    assert "unknown placement ssd" in run.err
    assert "streamed-3-cold" in run.err


def test_device_that_is_not_there(engine_python: Path, tree: Path) -> None:
    run = bench(engine_python, ["--tiny", "--tree", tree, "--device", "cuda:99"])
    assert run.code == 2
    assert "cannot measure on cuda:99" in run.err


def test_a_streamer_that_computes_with_wrong_weights_is_found_out(
    engine_python: Path, tree: Path, tmp_path: Path
) -> None:
    """The files alone suffice; and the comparison notices a copy that lacks one byte."""
    folder = tmp_path / "towers"
    shutil.copytree(tree / TOWERS, folder)
    runtime = folder / "runtime.py"
    right = "self._slots[slot][: source.numel()].copy_(source)\n"
    text = runtime.read_text()
    assert text.count(right) == 1
    arguments = ["--tiny", "--towers-dir", folder, "--repeats", 1, "--tower", "siglip-so400m"]
    arguments += ["--placement", "streamed-3", "--placement", "serial-copy", "--device", "cpu"]
    assert bench(engine_python, arguments).code == 0
    runtime.write_text(text.replace(right, f"{right}        self._slots[slot][1] ^= 64\n"))
    path = tmp_path / "figures.json"
    run = bench(engine_python, [*arguments, "--json", path])
    assert run.code == 1
    assert "PROBLEM: siglip-so400m, streamed, 3 slots, 16 patches: the output differs" in run.out
    found = rows(read_json(path))
    assert found["siglip-so400m", "streamed-3"]["cells"][0]["equal"] is False
    assert found["siglip-so400m", "serial-copy"]["cells"][0]["equal"] is True


def test_nothing_of_vllm_is_imported_but_the_streamer(engine_python: Path, tree: Path) -> None:
    """Also where a vLLM is installed, as in the engine's environment."""
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "from pathlib import Path\n"
        "from bench_towers.streamer_files import find_towers_folder, load_streamer\n"
        f"load_streamer(find_towers_folder(Path({str(tree)!r}), None))\n"
        "import transformers.models.siglip.modeling_siglip\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] == 'vllm'))\n"
    )
    done = subprocess.run(
        [engine_python, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    towers = "vllm.model_executor.offloader.towers"
    packages = {"vllm", "vllm.model_executor", "vllm.model_executor.offloader", towers}
    found = set(done.stdout.split())
    assert packages | {f"{towers}.streamer", f"{towers}.units"} <= found
    assert all(name.startswith(f"{towers}.") for name in found - packages)
