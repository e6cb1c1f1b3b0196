"""What `scripts/bench-towers` refuses, before it measures and, so, before it needs torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import TOWERS, without_torch


def test_unknown_tower(towers_folder: Path) -> None:
    run = without_torch(["--towers-dir", towers_folder, "--tower", "clip-huge"])
    assert run.code == 2
    assert "unknown tower clip-huge" in run.err
    assert "qwen3-vl-8b, qwen2.5-vl-7b, siglip-so400m" in run.err


def test_missing_tree(tmp_path: Path) -> None:
    tree = tmp_path / "build" / "vllm-0.33.0"
    run = without_torch(["--tree", tree])
    assert run.code == 2
    assert str(tree / TOWERS) in run.err
    assert "next:  make apply" in run.err


def test_tree_without_the_patches(tmp_path: Path) -> None:
    tree = tmp_path / "vllm"
    (tree / TOWERS).mkdir(parents=True)
    run = without_torch(["--tree", tree])
    assert run.code == 2
    assert "carries the streaming patches" in run.err


def test_folder_that_lacks_a_file(towers_folder: Path) -> None:
    (towers_folder / "streamer.py").unlink()
    run = without_torch(["--towers-dir", towers_folder])
    assert run.code == 2
    assert str(towers_folder) in run.err
    assert "streamer.py" in run.err


@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_unwritable_output(towers_folder: Path, tmp_path: Path, option: str) -> None:
    run = without_torch(["--towers-dir", towers_folder, option, tmp_path / "not there" / "figures"])
    assert run.code == 2
    assert "cannot write: No such file or directory" in run.err
    assert "torch" not in run.err


def test_output_that_is_a_folder(towers_folder: Path, tmp_path: Path) -> None:
    run = without_torch(["--towers-dir", towers_folder, "--json", tmp_path])
    assert run.code == 2
    assert "cannot write: Is a directory" in run.err


def test_python_without_torch(towers_folder: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    run = without_torch(["--towers-dir", towers_folder, "--json", figures])
    assert run.code == 2
    assert "this Python has no torch" in run.err
    assert "/path/to/python scripts/bench-towers" in run.err
    assert not figures.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--patches", "64,66"], "multiples of 4"),
        (["--patches", "0"], "multiples of 4"),
        (["--patches", "many"], "--patches"),
        (["--repeats", "0"], "at least 1"),
        (["--resident-share", "1.5"], "between 0 and 1"),
        (["--dtype", "int8"], "--dtype"),
    ],
)
def test_bad_value(arguments: list[str], says: str) -> None:
    run = without_torch(arguments)
    assert run.code == 2
    assert says in run.err


@pytest.mark.parametrize("seconds", ["nan", "0", "-5", "inf"])
def test_no_time_at_all(seconds: str) -> None:
    run = without_torch(["--budget-seconds", seconds])
    assert run.code == 2
    assert "above 0" in run.err


def test_one_file_for_two_outputs(towers_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "out"
    run = without_torch(["--towers-dir", towers_folder, "--json", path, "--svg", path])
    assert run.code == 2
    assert "name one file" in run.err
