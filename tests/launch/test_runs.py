"""Run folders: private, short, and cleaned only where they are provably ours."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch import runs
from rig.launch.keeper_client import KeeperClient
from rig.launch.processes import boot_id, descendants, is_alive, pid_namespace, read_process
from rig.launch.runs import (
    MARK_VARIABLE,
    RUNTIME_VARIABLE,
    Run,
    RunState,
    recover_stale_runs,
    runtime_folder,
)
from rig.launch.shared_memory import SharedFile, remove_unused, used_by


def sleeper(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def leave(runtime: Path, name: str, state: RunState) -> Path:
    """A run folder as a killed keeper leaves it."""
    folder = runtime / name
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "state.json").write_text(state.to_json())
    return folder


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_run_is_private_under_any_umask(runtime: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        run = Run(runtime)
    finally:
        os.umask(old)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in run.folder.iterdir()}
    assert modes == {"lock": "0o600", "token": "0o600", "state.json": "0o600"}
    assert oct(run.folder.stat().st_mode & 0o777) == "0o700"
    run.remove()
    assert not run.folder.exists()


def test_a_run_that_has_no_room_leaves_nothing(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(runs, "_write_private", full)
    with pytest.raises(OSError, match="No space left"):
        Run(runtime)
    assert list(runtime.iterdir()) == []


def test_a_keeper_says_why_it_cannot_make_its_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RigError, match="No such file or directory") as caught:
        KeeperClient(tmp_path / "none")
    assert RUNTIME_VARIABLE in str(caught.value.next_step)
    assert capfd.readouterr().err == ""


def test_ray_fits_into_the_longest_runtime_folder(tmp_path: Path) -> None:
    for length, fits in ((32, True), (33, False)):
        named = "/tmp/" + "r" * (length - 5)
        try:
            folder = runtime_folder(named)
        except RigError as error:
            assert not fits and "too long" in error.what
            continue
        assert fits
        session = "session_2026-11-29_16-00-23_467863_4194304"
        assert len(f"{folder}/12345678/r/{session}/sockets/plasma_store") == 107
        folder.rmdir()


def test_a_runtime_folder_that_others_can_enter_is_refused(runtime: Path) -> None:
    runtime.chmod(0o755)
    with pytest.raises(RigError, match="not yours alone"):
        runtime_folder(str(runtime))


def test_a_runtime_folder_behind_a_link_is_refused(runtime: Path) -> None:
    link = runtime / "l"
    (runtime / "real").mkdir(mode=0o700)
    link.symlink_to(runtime / "real")
    with pytest.raises(RigError, match="not yours alone"):
        runtime_folder(str(link))


def test_a_pid_that_was_given_to_another_process_is_safe(runtime: Path) -> None:
    bystander = sleeper()
    process = read_process(bystander.pid)
    assert process is not None
    stale = RunState("m", boot_id(), pid_namespace(), {(process.pid, process.started - 1)})
    folder = leave(runtime, "a", stale)
    assert recover_stale_runs(runtime) == []
    assert is_alive(process.pid, process.started)
    assert not folder.exists()
    bystander.kill()
    bystander.wait()


def test_a_process_is_known_by_the_runs_mark_alone(runtime: Path) -> None:
    ours, other = sleeper(**{MARK_VARIABLE: "abc"}), sleeper(**{MARK_VARIABLE: "abcd"})
    for process in (ours, other):
        assert process.stdout is not None
        process.stdout.readline()
    leave(runtime, "a", RunState("abc", boot_id(), pid_namespace()))
    (sentence,) = recover_stale_runs(runtime)
    assert "stopped 1 of its processes" in sentence
    assert ours.wait(5) and other.poll() is None
    other.kill()
    other.wait()


def test_after_a_boot_only_the_folder_is_removed(runtime: Path) -> None:
    bystander = sleeper()
    process = read_process(bystander.pid)
    assert process is not None
    old = RunState("m", "another boot", pid_namespace(), {(process.pid, process.started)})
    folder = leave(runtime, "a", old)
    assert recover_stale_runs(runtime) == []
    assert bystander.poll() is None and not folder.exists()
    bystander.kill()
    bystander.wait()


def test_the_run_of_another_container_is_left(runtime: Path) -> None:
    folder = leave(runtime, "a", RunState("m", boot_id(), "pid:[1]"))
    (sentence,) = recover_stale_runs(runtime)
    assert "another container" in sentence and folder.exists()


def test_damaged_and_half_made_runs(runtime: Path) -> None:
    damaged = leave(runtime, "a", RunState("m", boot_id(), pid_namespace()))
    (damaged / "state.json").write_text('{"mark": ')
    fresh, abandoned = runtime / ".b", runtime / ".c"
    fresh.mkdir()
    abandoned.mkdir()
    os.utime(abandoned, (time.time() - 3600, time.time() - 3600))
    assert recover_stale_runs(runtime) == []
    assert sorted(path.name for path in runtime.iterdir()) == [".b"]


def test_a_later_file_of_the_same_name_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "psm_1"
    path.write_text("later")
    ours = SharedFile(str(path), path.stat().st_ino + 1)
    assert remove_unused([ours], tmp_path) == ([], [])
    assert path.exists()
    same = SharedFile(str(path), path.stat().st_ino)
    with path.open():
        assert used_by([os.getpid()], tmp_path) == {same}
        assert remove_unused([same], tmp_path) == ([], [])
    assert remove_unused([same], tmp_path) == ([str(path)], [])


def test_a_process_with_an_awkward_name(tmp_path: Path) -> None:
    program = tmp_path / "a ) S 1 (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "60"])
    try:
        found = {process.pid: process for process in descendants(os.getpid())}
        assert found[child.pid].name == "a ) S 1 (b"
        assert found[child.pid].parent == os.getpid()
    finally:
        child.kill()
        child.wait()
