"""A Ray that others run on the box is seen, said, and left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.launch.other_rays import other_rays
from rig.launch.plan import ServeOptions
from rig.launch.runs import MARK_VARIABLE
from rig.launch.serve import plan_serve, serving

from .checks import alive, assert_clean, nothing


@pytest.fixture
def foreign(runtime: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process named as Ray's, another user's if this one is root, in a folder like Ray's own."""
    folder = runtime.parent / f"{runtime.name}-foreign"
    folder.mkdir(mode=0o755)
    shutil.copy(shutil.which("sleep") or "/bin/sleep", folder / "raylet")
    other = {"user": 65534} if os.getuid() == 0 else {}
    environment = {"PATH": os.environ["PATH"]}
    process = subprocess.Popen([folder / "raylet", "60"], env=environment, **other)  # type: ignore[call-overload]
    yield process
    process.kill()
    process.wait()
    shutil.rmtree(folder)


def test_it_is_named_and_survives_our_start_and_stop(
    options: ServeOptions, runtime: Path, foreign: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    address = Path("/tmp/ray/ray_current_cluster")
    before = address.read_bytes() if address.exists() else None
    steps: list[str] = []
    plan = plan_serve(options)
    with serving(plan, check_installation=nothing, progress=steps.append) as server:
        pids = server.pids()
        assert foreign.pid not in pids
        (said,) = [step for step in steps if f"raylet pid {foreign.pid}" in step]
        assert said.startswith("another Ray runs on this box (user ")
        assert "it is left alone" in said
    assert_clean(server, runtime, pids)
    assert foreign.poll() is None and alive(foreign.pid)
    assert (address.read_bytes() if address.exists() else None) == before


def test_our_own_are_not_called_foreign(runtime: Path) -> None:
    program = runtime / "raylet"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    ours = subprocess.Popen([program, "60"], env={MARK_VARIABLE: "x"})
    theirs = subprocess.Popen([program, "60"], env={})
    try:
        said = " ".join(other_rays())
        assert f"pid {theirs.pid}" in said
        assert f"pid {ours.pid}" not in said
        assert f"pid {os.getpid()}" not in said and sys.executable not in said
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()
