"""A disk that is full or cannot be written: an error that says so, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.git import Git
from rig.series import lock as lock_module
from rig.series import refresh as refresh_module

from .releases import SECOND
from .workshop import Workshop, run_git

# --- no room, no right ----------------------------------------------------------------------


@pytest.fixture
def small_build(two_patches: Workshop) -> Iterator[Workshop]:
    """build/ lies on a file system of 400 KiB, which the tree of one pin does not fit."""
    build = two_patches.layout.build
    shutil.rmtree(build)
    build.mkdir()
    yield from mounted(two_patches, build, "size=400k")


def mounted(workshop: Workshop, folder: Path, options: str) -> Iterator[Workshop]:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield workshop
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def filled(folder: Path, leave: int) -> Path:
    """Fill a file system up to `leave` bytes."""
    filler = folder / "filler.lock"
    free = os.statvfs(folder)
    filler.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - leave))
    return filler


@pytest.mark.parametrize("leave", [8192, 81920, 180224, 229376])
def test_a_full_disk(small_build: Workshop, leave: int) -> None:
    filler = filled(small_build.layout.build, leave)
    for work in (small_build.apply, small_build.verify, small_build.refresh):
        with pytest.raises(RigError) as caught:
            work()
        said = str(caught.value)
        assert "No space left on device" in said or "Out of diskspace" in said
        assert "free some disk space" in said or "400 MB are needed" in said
        assert small_build.leftovers() == []
    assert not small_build.tree().exists()
    filler.unlink()


def test_a_full_disk_keeps_the_tree_that_is_there(two_patches: Workshop) -> None:
    two_patches.apply(SECOND)
    two_patches.layout.series.write_text("0101-run-the-engine.patch\n")
    real = Git.run

    def run(self: Git, *arguments: str | Path, **named: object) -> object:
        if "commit" in arguments:
            raise OSError(28, "No space left on device")
        return real(self, *arguments, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RigError) as caught:
        patch.setattr(Git, "run", run)
        two_patches.apply(SECOND)
    assert "make room" in str(caught.value.next_step)
    assert (
        run_git(two_patches.tree(SECOND), "log", "-1", "--format=%s").strip()
        == "[Config] Configure"
    )


def test_patches_folder_is_full(
    changed: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third file cannot be written: an error that says so, and the next run finishes."""
    real, left = lock_module.replace_file, [2]

    def replace_file(path: Path, content: bytes) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device", str(path))
        return real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(refresh_module, "replace_file", replace_file)
        with pytest.raises(RigError, match="No space left on device") as caught:
            changed.refresh()
    assert caught.value.next_step
    changed.refresh()
    changed.verify()


def test_build_is_read_only(two_patches: Workshop) -> None:
    build = two_patches.layout.build
    gone = mounted(two_patches, build, "ro")
    next(gone)
    try:
        said = two_patches.command_line("apply").must_fail()
        assert "Read-only file system" in said
        assert "build" in said
        assert "Read-only" in two_patches.command_line("verify").must_fail()
    finally:
        gone.close()  # type: ignore[attr-defined]
