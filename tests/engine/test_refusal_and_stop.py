"""A changed installation refuses to start; an interrupted rehearsal leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
from rig.rehearsal.rehearse import provenance_of_wheel
from rig.rehearsal.stage import serve_options
from rig.rehearsal.traces import traces, what_remains

from .conftest import Stage

pytestmark = pytest.mark.engine

SCRIPTS = Path(rig.__file__).parents[1]


@pytest.fixture
def overlay(stage: Stage) -> Iterator[Path]:
    """A copy of the installed package, to be changed: links, so that it costs nothing."""
    folder = stage.environment.folder.parent / "rehearsal" / "overlay"
    shutil.rmtree(folder, ignore_errors=True)
    source = stage.environment.site_packages / "vllm"
    shutil.copytree(source, folder / "vllm", copy_function=os.link)
    yield folder
    shutil.rmtree(folder)


def import_engine(stage: Stage, overlay: Path) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
    return subprocess.run(
        [str(stage.environment.python), "-c", "import vllm.entrypoints.cli.main"],
        env=inherited | {"PYTHONPATH": str(overlay)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def patched_module(stage: Stage) -> str:
    """A module that the series changes."""
    files = provenance_of_wheel(stage.wheel).files
    return next(f for f in sorted(files) if f.startswith("vllm/platforms/"))


def test_an_unchanged_copy_starts(stage: Stage, overlay: Path) -> None:
    done = import_engine(stage, overlay)
    assert done.returncode == 0, done.stderr


def test_a_changed_file_refuses_to_start_and_is_named(stage: Stage, overlay: Path) -> None:
    name = patched_module(stage)
    changed = (overlay / name).read_bytes() + b"\n"
    (overlay / name).unlink()  # it is a link to the installed file
    (overlay / name).write_bytes(changed)
    done = import_engine(stage, overlay)
    assert done.returncode != 0
    assert name in done.stderr


def test_an_interrupted_rehearsal_leaves_nothing(stage: Stage) -> None:
    before = traces(stage.environment.folder)
    options = serve_options(
        stage.environment, stage.model, stage.folder / "logs interrupted", ranks=2
    )
    code = f"""
from pathlib import Path
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.rehearse import served_without_trace
from rig.rehearsal.stage import serve_options
environment = EngineEnvironment(Path({str(stage.environment.folder)!r}), "")
options = serve_options(
    environment, Path({str(stage.model)!r}), Path({str(options.log_folder)!r}), ranks=2
)
with served_without_trace(environment, options):
    pass
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SCRIPTS)}
    ) as victim:
        engine_log = options.log_folder / "engine.log"
        deadline = time.monotonic() + 120
        while not (engine_log.exists() and engine_log.stat().st_size):
            assert victim.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.2)
        during = traces(stage.environment.folder)
        assert during.processes - before.processes, "nothing ran"
        victim.send_signal(signal.SIGINT)
        assert victim.wait(60) != 0
    assert what_remains(stage.environment.folder, before, [during]).ours == ()
