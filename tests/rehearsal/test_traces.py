"""What a launch could leave behind, on real processes and files."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig.rehearsal.traces import traces, what_remains

MAPS = """
import mmap, sys, time
files = [open(path, "r+b") for path in sys.argv[1:]]
maps = [mmap.mmap(file.fileno(), 0) for file in files]
print("ready", flush=True)
time.sleep(60)
"""
HOLDS_OPEN = """
import sys, time
files = [open(path, "r+b") for path in sys.argv[1:]]
print("ready", flush=True)
time.sleep(60)
"""


def page(path: Path) -> Path:
    """A file that can be mapped."""
    path.write_bytes(b"x" * mmap.PAGESIZE)
    return path


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file of an environment; a process that maps it counts as one of the environment."""
    folder = tmp_path / "an environment"
    folder.mkdir()
    return page(folder / "library.so")


@pytest.fixture
def shm(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "shm"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@contextmanager
def running(code: str, *paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", code, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def test_a_process_of_the_environment_is_seen_until_it_ends(library: Path, shm: Path) -> None:
    before = traces(library.parent, shm=shm)
    with running(MAPS, library) as process:
        (seen,) = traces(library.parent, shm=shm).processes - before.processes
        assert str(seen).startswith(f"{process.pid} (")
    assert traces(library.parent, shm=shm).processes <= before.processes


def test_a_process_of_a_folder_with_a_longer_name_is_not_meant(library: Path, shm: Path) -> None:
    other = library.parent.with_name("an environment of another")
    shutil.copytree(library.parent, other)
    with running(MAPS, other / library.name):
        assert not traces(library.parent, shm=shm).processes


def test_files_are_told_apart_by_who_uses_them(library: Path, shm: Path) -> None:
    ours, others, held, nobodys = (page(shm / f"psm_{n}") for n in range(4))
    with (
        running(MAPS, library, ours),
        running(MAPS, others),
        running(HOLDS_OPEN, held),
    ):
        seen = traces(library.parent, shm=shm)
    assert seen.used == {str(ours)}
    assert seen.unused == {str(nobodys)}


def test_a_file_that_is_gone_although_mapped_is_not_there(library: Path, shm: Path) -> None:
    gone = page(shm / "psm_1")
    with running(MAPS, library, gone):
        gone.unlink()
        assert not traces(library.parent, shm=shm).unused


@pytest.fixture
def real_file() -> Iterator[Path]:
    path = Path("/dev/shm") / f"vllm-rig-test-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


def test_a_file_that_our_process_was_seen_with_is_ours(library: Path, real_file: Path) -> None:
    before = traces(library.parent)
    page(real_file)
    with running(MAPS, library, real_file):
        during = traces(library.parent)
    remains = what_remains(library.parent, before, [during], patience=0.3)
    assert remains.ours == (f"file {real_file}",)
    real_file.unlink()
    assert what_remains(library.parent, before, [during], patience=0.3).ours == ()


def test_a_file_that_our_process_was_not_seen_with_is_of_whoever(
    library: Path, real_file: Path
) -> None:
    before = traces(library.parent)
    page(real_file)
    remains = what_remains(library.parent, before, [], patience=0.3)
    assert not remains.ours
    assert f"file {real_file}" in remains.of_whoever


def test_a_file_that_was_there_before_is_not_left(library: Path, real_file: Path) -> None:
    page(real_file)
    before = traces(library.parent)
    assert f"file {real_file}" not in what_remains(library.parent, before, [], 0.3).of_whoever


def test_what_is_just_being_removed_does_not_remain(library: Path, real_file: Path) -> None:
    before = traces(library.parent)
    page(real_file)
    with running(MAPS, library, real_file):
        during = traces(library.parent)
    threading.Timer(0.5, real_file.unlink).start()
    assert what_remains(library.parent, before, [during]).ours == ()


def test_a_process_that_still_runs_remains(library: Path) -> None:
    before = traces(library.parent)
    with running(MAPS, library) as process:
        (left,) = what_remains(library.parent, before, [], patience=0.3).ours
        assert left.startswith(f"process {process.pid} (")


STARTS_ONE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2].split("|")])
print(child.pid, flush=True)
time.sleep(60)
"""


@contextmanager
def adopted(library: Path, *words: str) -> Iterator[int]:
    """A process that maps the library, below one with these words that nobody here started."""
    orphan = '"$@" & echo parent $!'
    command = [sys.executable, "-c", STARTS_ONE, MAPS, str(library), *words]
    with subprocess.Popen(["sh", "-c", orphan, "sh", *command], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        said = [shell.stdout.readline().decode().split() for _ in range(3)]
        shell.wait(10)
        (child,) = (int(words[0]) for words in said if words[0].isdigit())
        (parent,) = (int(words[1]) for words in said if words[0] == "parent")
        try:
            yield child
        finally:
            for pid in (child, parent):
                os.kill(pid, signal.SIGKILL)


def test_a_serve_that_another_run_started_meanwhile_is_not_ours(library: Path) -> None:
    before = traces(library.parent)
    with adopted(library, "-m", "rig.launch.keeper") as child:
        assert child in {seen.pid for seen in traces(library.parent).processes}
        assert not traces(library.parent, before=before).processes
        assert what_remains(library.parent, before, [], patience=0.3).ours == ()


def test_what_nobody_keeps_remains(library: Path) -> None:
    before = traces(library.parent)
    with adopted(library, "serve") as child:
        (left,) = what_remains(library.parent, before, [], patience=0.3).ours
        assert left.startswith(f"process {child} (")


def test_what_is_below_a_keeper_of_this_process_remains(library: Path) -> None:
    before = traces(library.parent)
    command = [sys.executable, "-c", STARTS_ONE, MAPS, str(library), "-m", "rig.launch.keeper"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        said = {keeper.stdout.readline().decode().strip() for _ in range(2)}
        (child,) = (int(word) for word in said - {"ready"})
        try:
            (left,) = what_remains(library.parent, before, [], patience=0.3).ours
            assert left.startswith(f"process {child} (")
        finally:
            os.kill(child, signal.SIGKILL)
            keeper.kill()


FORKS = """
import mmap, os, sys, time
file = open(sys.argv[1], "r+b")
kept = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def test_what_a_process_that_was_there_before_starts_is_not_ours(library: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as older:
        assert older.stdin is not None
        assert older.stdout is not None
        assert older.stdout.readline() == b"ready\n"
        before = traces(library.parent)
        older.stdin.write(b"\n")
        older.stdin.flush()
        child = int(older.stdout.readline())
        try:
            assert child in {seen.pid for seen in traces(library.parent).processes}
            assert what_remains(library.parent, before, [], patience=0.3).ours == ()
        finally:
            os.kill(child, signal.SIGKILL)
            older.kill()
