"""How the tests run `scripts/bench-towers`: as a person does, in a Python that they choose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rig.launch.engine_environment import PYTHON_VARIABLE
from rig.layout import layout_of_this_checkout
from rig.pins import Flavour, find_pin, primary_pin, this_arch
from rig.rehearsal.environment import engine_environment
from rig.revision import read_revision
from rig.series.apply import apply
from rig.wheel.build import build_wheel

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench-towers"
TOWERS = Path("vllm", "model_executor", "offloader", "towers")
ENGINE = "0.32.0"


@dataclass(frozen=True)
class Run:
    """What a run of the benchmark left behind."""

    code: int
    out: str
    err: str
    seconds: float = 0.0


def bench(python: Path | str, arguments: Sequence[object]) -> Run:
    """Run the benchmark."""
    done = subprocess.run(
        [python, SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
        # Two threads of a tiny tower wait for each other longer than they compute.
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return Run(done.returncode, done.stdout, done.stderr)


def without_torch(arguments: Sequence[object]) -> Run:
    """Run it in the tools' own Python: enough for whatever is refused before it measures."""
    return bench(sys.executable, arguments)


def read_json(path: Path) -> dict[str, Any]:
    """The figures, strictly: `NaN` is not JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    content: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return content


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """A Python with torch and transformers: the engine's, or what VLLM_RIG_PYTHON names."""
    if named := os.environ.get(PYTHON_VARIABLE):
        return Path(named)
    layout = layout_of_this_checkout()
    pin = find_pin(layout, ENGINE)
    tree = apply(layout, pin)
    wheel = build_wheel(layout, tree, Flavour.CPU, this_arch(), read_revision(layout)).path
    return engine_environment(layout, pin, wheel).python


@pytest.fixture(scope="session")
def tree() -> Path:
    """The applied tree of the primary pin, as it is: your edits are what you want to measure."""
    layout = layout_of_this_checkout()
    folder = layout.tree(primary_pin(layout).version)
    return folder if (folder / TOWERS).is_dir() else apply(layout, primary_pin(layout)).folder


@pytest.fixture
def towers_folder(tmp_path: Path) -> Path:
    """A folder that looks like the streamer's files, for runs that stop before they load them."""
    folder = tmp_path / "towers"
    folder.mkdir()
    for name in ("host_limits", "host_memory", "runtime", "schedule", "streamer", "units"):
        (folder / f"{name}.py").write_text("raise AssertionError('loaded')\n")
    return folder
