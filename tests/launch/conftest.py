"""An engine environment of fakes: a real virtual environment, programs that behave on request."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig.launch.plan import ServeOptions
from rig.launch.runs import RUNTIME_VARIABLE

FAKES = Path(__file__).parent / "fakes"


@dataclass(frozen=True)
class FakeEngine:
    """A virtual environment whose `ray` and `vllm` are ours."""

    python: Path
    site: Path

    def add_distribution(self, name: str, version: str) -> None:
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def add_program(self, name: str, source: Path) -> None:
        program = self.python.parent / name
        # What pip writes where the interpreter's path has a space: sh runs line 2, Python skips it.
        start = f"""#!/bin/sh\n'''exec' "{self.python}" "$0" "$@"\n' '''\n"""
        program.write_text(start + source.read_text())
        program.chmod(0o755)


def make_engine(folder: Path) -> FakeEngine:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    return FakeEngine(folder / "bin" / "python", site)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> FakeEngine:
    """The fakes, complete."""
    made = make_engine(tmp_path_factory.mktemp("engine-environment") / "venv")
    made.add_distribution("vllm", "9.9.9+rig.1.cpu")
    made.add_distribution("ray", "2.60.0")
    (made.site / "vllm").mkdir()
    (made.site / "vllm" / "__init__.py").touch()
    (made.site / "ray" / "_private").mkdir(parents=True)
    (made.site / "ray" / "__init__.py").touch()
    (made.site / "ray" / "_private" / "__init__.py").touch()
    (made.site / "grpc.py").touch()
    shutil.copy(FAKES / "fake_ray_state.py", made.site / "ray" / "_private" / "state.py")
    shutil.copy(FAKES / "fake_raylet.py", made.site / "ray" / "_raylet.py")
    made.add_program("ray", FAKES / "fake_ray_program.py")
    made.add_program("vllm", FAKES / "fake_vllm_program.py")
    return made


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for runs with a path short enough for sockets, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="rig", dir="/tmp"))
    monkeypatch.setenv(RUNTIME_VARIABLE, str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the fakes write down how they were called."""
    folder = tmp_path / "seen"
    folder.mkdir()
    monkeypatch.setenv("FAKE_SEEN", str(folder))
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def options(engine: FakeEngine, runtime: Path, seen: Path, tmp_path: Path) -> ServeOptions:
    """Two ranks on the fakes, with little patience."""
    return ServeOptions(
        model="some/model",
        python=engine.python,
        log_folder=tmp_path / "logs",
        ranks=2,
        rehearse=True,
        stop_patience_s=0.2,
        ready_timeout_s=20,
    )
