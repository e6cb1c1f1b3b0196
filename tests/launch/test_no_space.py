"""No room where a run's files go: said clearly, whenever it shows, and nothing is left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch import runs
from rig.launch.plan import ServeOptions
from rig.launch.runs import require_room
from rig.launch.serve import plan_serve, serving

from .checks import nothing

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def small_disk(runtime: Path) -> Iterator[Path]:
    """The folder of runs on a file system of 16 pages of memory."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={16 * PAGE},mode=0700", "tmpfs", str(runtime)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield runtime
    subprocess.run(["umount", str(runtime)], check=True)


def fill(disk: Path, leave_pages: int) -> None:
    free = os.statvfs(disk).f_bavail
    (disk / "filler").write_bytes(bytes((free - leave_pages) * PAGE))
    assert os.statvfs(disk).f_bavail == leave_pages


def test_it_is_said_before_anything_starts(
    options: ServeOptions, small_disk: Path, seen: Path
) -> None:
    with (
        pytest.raises(RigError, match=r"no space for a run: 0\.1 MiB are free") as caught,
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("served without room")
    assert caught.value.where == small_disk
    assert "VLLM_RIG_RUNTIME" in str(caught.value.next_step)
    assert not (seen / "ray.json").exists()
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_before_the_run_has_its_folder(
    options: ServeOptions, small_disk: Path, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LEAST_ROOM_BYTES", 0)
    fill(small_disk, leave_pages=0)
    with (
        pytest.raises(RigError, match="the run's folder cannot be made: No space left on device"),
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("served without room")
    assert not (seen / "ray.json").exists()
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_disk_that_fills_up_while_ray_starts(
    options: ServeOptions, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LEAST_ROOM_BYTES", 0)
    fill(small_disk, leave_pages=2)  # the token and the state, and nothing for Ray
    with (
        pytest.raises(RigError, match=r"Ray did not start: .*[Nn]o space left") as caught,
        serving(plan_serve(replace(options, ready_timeout_s=5)), check_installation=nothing),
    ):
        pytest.fail("served without room")
    assert caught.value.where == options.log_folder / "ray.log"
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_enough_is_enough(tmp_path: Path) -> None:
    require_room(tmp_path, 1)
    with pytest.raises(RigError, match="no space for a run"):
        require_room(tmp_path, 2**60)
