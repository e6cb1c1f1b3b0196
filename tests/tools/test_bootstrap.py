"""`./rig` itself: whatever folder it is called from, and whatever make is told."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_files_of_the_folder_it_is_called_from_are_not_imported(tmp_path: Path) -> None:
    """vLLM's tree has folders with a logging.py, an inspect.py, a typing of its own."""
    for name in ("logging", "typer", "inspect", "rig"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    done = run([str(ROOT / "rig"), "pins"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "primary" in done.stdout


def test_it_can_be_linked_to(tmp_path: Path) -> None:
    (tmp_path / "rig").symlink_to(ROOT / "rig")
    done = run([str(tmp_path / "rig"), "pins"], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [["FLAVOUR=cpu"], ["VLLM=0.32.0", "FLAVOR=cpu", "VERSION=1"], ["vllm=0.32.0"]]
)
def test_make_refuses_a_variable_that_it_does_not_know(arguments: list[str]) -> None:
    done = run(["make", "-n", "build", *arguments], ROOT)
    assert done.returncode == 2
    assert "unknown variable" in done.stderr


def test_make_passes_on_what_it_knows() -> None:
    done = run(["make", "-n", "-j2", "build", "VLLM=0.32.0", "FLAVOR=cpu"], ROOT)
    assert "rig build 0.32.0 --flavor cpu --from wheel" in done.stdout


def test_every_target_runs_although_folders_have_such_names() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    phony = next(x for x in text.splitlines() if x.startswith(".PHONY:")).split()[1:]
    targets = [x.split(":")[0] for x in text.splitlines() if x[:1].isalpha() and ":" in x]
    assert set(targets) <= set(phony)


def test_a_checkout_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "requirements").mkdir(parents=True)
    (copy / ".tools-env.lock").mkdir()  # root may write anywhere: a folder in the way stops it too
    shutil.copytree(ROOT / "scripts", copy / "scripts", ignore=shutil.ignore_patterns("rig"))
    shutil.copy(ROOT / "requirements/tools.txt", copy / "requirements")
    done = run([str(copy / "scripts/tools-env.sh"), "pins"], tmp_path)
    assert done.returncode == 1
    assert "is not writable" in done.stderr
