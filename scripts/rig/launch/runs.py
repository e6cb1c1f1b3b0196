"""The private folder of each run, and what to do about a run that could not clean up itself.

    /tmp/vllm-rig-<uid>/            0700, one per user (VLLM_RIG_RUNTIME names another one)
        <run>/lock                  held by the run's keeper as long as it lives
        <run>/state.json            its processes and shared memory files, kept up to date
        <run>/token                 Ray's token, 0600
        <run>/r/                    Ray's temporary folder

Whether a run is alive is asked of its lock, never of a pid: the system drops a lock with its
holder, whatever killed it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rig.errors import RigError
from rig.launch.processes import (
    Process,
    boot_id,
    descendants,
    is_alive,
    marked,
    pid_namespace,
    read_process,
)
from rig.launch.shared_memory import SharedFile, remove_unused

RUNTIME_VARIABLE = "VLLM_RIG_RUNTIME"
MARK_VARIABLE = "RIG_LAUNCH_MARK"
# A UNIX socket's path has room for 107 bytes. Ray needs 66 of them below the folder of a run
# ("/r/session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store"), the run's name 9.
LONGEST_RUNTIME_FOLDER = 107 - 66 - 9
# Ray's own logs and tables take a few MiB in an hour here; with less it dies in odd places.
LEAST_ROOM_BYTES = 64 * 2**20
_ABANDONED_AFTER_S = 60.0


def runtime_folder(named: str | None = None) -> Path:
    """The folder of all runs of this user, made if missing.

    Not $TMPDIR (often too long for a socket's path) and not $XDG_RUNTIME_DIR (small, in memory,
    and removed when the user logs out of the box with the server still running).

    Args:
        named: the value of VLLM_RIG_RUNTIME, if set.

    Raises:
        RigError: the path is too long, or the folder is not this user's alone.
    """
    folder = Path(named).absolute() if named else Path(f"/tmp/vllm-rig-{os.getuid()}")
    if len(os.fsencode(folder)) > LONGEST_RUNTIME_FOLDER:
        raise RigError(
            f"the folder for runs has a path of more than {LONGEST_RUNTIME_FOLDER} bytes, "
            "too long for Ray's sockets",
            where=folder,
            next_step=f"set {RUNTIME_VARIABLE} to a shorter one, or unset it",
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise RigError(
            f"the folder for runs cannot be made: {error.strerror}",
            where=folder,
            next_step=f"set {RUNTIME_VARIABLE} to a folder that you may write",
        ) from error
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not private or stat.S_IMODE(status.st_mode) & 0o077:
        raise RigError(
            "the folder for runs is not yours alone, so secrets in it would not be safe",
            where=folder,
            next_step=f"remove it or `chmod 700` it, or set {RUNTIME_VARIABLE} to another one",
        )
    return folder


def require_room(folder: Path, least_bytes: int | None = None) -> None:
    """Raise RigError if a folder's file system has no room for what a run writes there."""
    least_bytes = LEAST_ROOM_BYTES if least_bytes is None else least_bytes
    free = shutil.disk_usage(folder).free
    if free < least_bytes:
        raise RigError(
            f"no space for a run: {free / 2**20:.1f} MiB are free and "
            f"{least_bytes / 2**20:.0f} MiB are needed for Ray's files",
            where=folder,
            next_step=f"free some (`df -h {folder}`), or set {RUNTIME_VARIABLE} to another folder",
        )


@dataclass
class RunState:
    """What is known of a run; on disk, so that a later launch can finish its cleaning."""

    mark: str
    boot: str
    namespace: str
    processes: set[tuple[int, int]] = field(default_factory=set)
    shared_memory: set[SharedFile] = field(default_factory=set)

    def to_json(self) -> str:
        return json.dumps(
            {
                "mark": self.mark,
                "boot": self.boot,
                "namespace": self.namespace,
                "processes": sorted(self.processes),
                "shared_memory": sorted((file.path, file.inode) for file in self.shared_memory),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RunState:
        raw = json.loads(text)
        return cls(
            mark=raw["mark"],
            boot=raw["boot"],
            namespace=raw["namespace"],
            processes={(pid, started) for pid, started in raw["processes"]},
            shared_memory={SharedFile(path, inode) for path, inode in raw["shared_memory"]},
        )


class Run:
    """One run's folder, locked by this process until `remove` or its death."""

    def __init__(self, runtime: Path) -> None:
        """Make the folder; it appears under its name only when locked and described.

        Raises:
            OSError: it cannot be made; nothing of it is left.
        """
        name = secrets.token_hex(4)
        making = runtime / f".{name}"
        self.state = RunState(secrets.token_hex(16), boot_id(), pid_namespace())
        self.folder = runtime / name
        making.mkdir(mode=0o700)
        try:
            making.chmod(0o700)
            self._lock = os.open(making / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_private(making / "token", secrets.token_hex(32))
            _write_private(making / "state.json", self.state.to_json())
            making.rename(self.folder)
        except OSError:
            shutil.rmtree(making, ignore_errors=True)  # the disk is full, say
            raise

    def save(self) -> None:
        """Write the state so that a crash leaves the old or the new one."""
        _write_private(self.folder / "state.new", self.state.to_json())
        (self.folder / "state.new").replace(self.folder / "state.json")

    def remove(self) -> None:
        """Remove the folder and let the lock go."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        # The mode given to open() is what the umask leaves of it, and an old file keeps its own.
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def end_processes(found: Iterable[Process], patience_s: float) -> list[Process]:
    """Ask processes to end, then end them; return those that even SIGKILL did not end."""
    waiting = list(found)
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        for process in waiting:
            if is_alive(process.pid, process.started):
                try:
                    os.kill(process.pid, number)
                except OSError:
                    continue
        deadline = time.monotonic() + wait_s
        while True:
            waiting = [p for p in waiting if is_alive(p.pid, p.started)]
            if not waiting or time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return waiting


def recover_stale_runs(runtime: Path) -> list[str]:
    """Clean up after runs whose keeper was killed; one sentence for each thing that was found.

    Only what is provably a run's own is touched: a process that it recorded and that still has
    its start time, or that carries the run's mark, and what descends from those; a shared memory
    file with the recorded inode that nobody uses.
    """
    said: list[str] = []
    for folder in sorted(runtime.iterdir()):
        if not folder.is_dir() or folder.is_symlink():
            continue
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # Half made: its maker needs microseconds, so an old one was abandoned.
            if folder.name.startswith(".") and _age_s(folder) > _ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # alive
        else:
            said += _recover(folder)
        finally:
            os.close(lock)
    return said


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def _recover(folder: Path) -> list[str]:
    try:
        state = RunState.from_json((folder / "state.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        state = None  # it died before it started anything
    said: list[str] = []
    if state is not None and state.boot == boot_id():
        if state.namespace != pid_namespace():
            return [f"run {folder.name} was left by another container: it is not touched"]
        processes = _survivors(state)
        left = end_processes(processes, patience_s=3.0)
        removed, _ = remove_unused(state.shared_memory)
        if processes or removed:
            said.append(
                f"run {folder.name} had been killed: stopped {len(processes) - len(left)} of its "
                f"processes, removed {len(removed)} files in /dev/shm"
            )
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            said.append(f"run {folder.name}: these processes do not end: {pids}")
            return said
    shutil.rmtree(folder, ignore_errors=True)
    return said


def _survivors(state: RunState) -> list[Process]:
    found = {process.pid: process for process in marked(MARK_VARIABLE, state.mark)}
    for pid, started in state.processes:
        process = read_process(pid)
        if process is not None and process.started == started:
            found[pid] = process
    for pid in list(found):
        found |= {process.pid: process for process in descendants(pid)}
    found.pop(os.getpid(), None)
    return [process for process in found.values() if process.alive]
