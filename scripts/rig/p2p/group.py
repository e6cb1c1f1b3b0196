"""The processes of one case: started, watched, ended as a group, and what they leave removed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rig.launch.processes import all_pids, read_process
from rig.launch.shared_memory import SharedFile, remove_unused, used_by
from rig.p2p.cases import Case
from rig.p2p.judge import Event, RankEnd
from rig.p2p.verdict import Way

_LOOK_S = 0.02
_SHARED_LOOK_S = 0.1
_AFTER_A_FAILURE_S = 5.0  # for the other ranks to say what they saw
_AFTER_A_KILL_S = 10.0
_TAIL_BYTES = 4000
_SCRATCH = "rig-p2p-"
_ABANDONED_AFTER_S = 60.0  # a folder is made and locked within milliseconds


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of this case; its lock says to others that it is in use."""
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    lock = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """An open lock of a scratch folder; None if another process holds it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def sweep_scratch() -> None:
    """Remove scratch folders of this user whose check was killed. (Its ranks died with it.)"""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            status = folder.lstat()
            young = time.time() - status.st_mtime < _ABANDONED_AFTER_S
            if status.st_uid != os.getuid() or folder.is_symlink() or young:
                continue
            lock = _locked(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


class Group:
    """The processes of one case, in one process group."""

    def __init__(self, case: Case, python: Path, spec: Path, env: Mapping[str, str]) -> None:
        self._case = case
        self._folder = spec.parent
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._statuses: dict[int, int] = {}
        self._ended_at: dict[int, float] = {}
        self._next_shared_look = 0.0
        self._shared: set[SharedFile] = set()
        self._pgid = 0
        try:
            for rank in range(case.ranks):
                self._start(rank, python, spec, env)
        except BaseException:
            self.end()
            raise

    def _start(self, rank: int, python: Path, spec: Path, env: Mapping[str, str]) -> None:
        command = [str(python), "-m", "p2p_check.worker", str(spec), str(rank), str(os.getpid())]
        with (self._folder / f"rank{rank}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=dict(env) | {"PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._pgid,
            )
        self._ranks.append(process)
        self._pgid = self._pgid or process.pid

    def watch(self, patience_s: Callable[[Way, bool], float]) -> float | None:
        """Wait for the end; the seconds of silence if that was it.

        Args:
            patience_s: how long silence may last, from the way and whether the first size began.
        """
        heard, last_word, failed_at = 0, time.monotonic(), None
        while True:
            self._look()
            now = time.monotonic()
            if len(self._statuses) == len(self._ranks):
                return None
            if failed_at is None and self._somebody_gave_up():
                failed_at = now
            if failed_at is not None and now - failed_at > _AFTER_A_FAILURE_S:
                return None
            said = sum(file.stat().st_size for file in self._folder.glob("rank*.jsonl"))
            if said > heard:
                heard, last_word = said, now
            patience = patience_s(self._case.way, self._begun())
            if failed_at is None and now - last_word > patience:
                return now - last_word
            time.sleep(_LOOK_S)

    def _begun(self) -> bool:
        return all(self._has_said("begin", rank) for rank in range(len(self._ranks)))

    def _somebody_gave_up(self) -> bool:
        """The others then wait for that rank in vain: it is no hang of theirs."""
        return any(
            status or self._has_said("refused", rank) for rank, status in self._statuses.items()
        )

    def _has_said(self, event: str, rank: int) -> bool:
        return any(said["event"] == event for said in self._events(rank))

    def _look(self) -> None:
        """Who has ended (without reaping: the group's number must stay ours), who shares what."""
        for rank, process in enumerate(self._ranks):
            if rank in self._statuses:
                continue
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, process.pid, how)
            if ended is not None:
                signalled = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self._statuses[rank] = -ended.si_status if signalled else ended.si_status
                self._ended_at[rank] = time.monotonic()
        if time.monotonic() >= self._next_shared_look:
            self._shared |= used_by(self._members())
            self._next_shared_look = time.monotonic() + _SHARED_LOOK_S

    def _members(self) -> list[int]:
        """The living processes of the group, also such as their parents left behind."""
        found = []
        for pid in all_pids():
            with suppress(OSError):
                if os.getpgid(pid) != self._pgid:
                    continue
                process = read_process(pid)
                if process is not None and process.alive:
                    found.append(pid)
        return found

    def end(self) -> tuple[int, ...]:
        """Kill what is left, reap it, remove its shared memory; the ids that SIGKILL left alive."""
        if not self._ranks:
            return ()
        self._next_shared_look = 0.0
        self._look()
        with suppress(ProcessLookupError):
            os.killpg(self._pgid, signal.SIGKILL)
        until = time.monotonic() + _AFTER_A_KILL_S
        while (left := self._members()) and time.monotonic() < until:
            time.sleep(0.02)
        for process in self._ranks:
            if process.pid not in left:
                process.wait()
        remove_unused(self._shared)
        return tuple(left)

    def _events(self, rank: int) -> list[Event]:
        try:
            text = (self._folder / f"rank{rank}.jsonl").read_text()
        except OSError:
            return []
        whole = text[: text.rfind("\n") + 1]  # a killed process may leave half a line
        return [json.loads(line) for line in whole.splitlines()]

    def ends(self) -> tuple[RankEnd, ...]:
        """What each rank said, and how it ended. Before the scratch folder goes."""
        found = []
        for rank in range(len(self._ranks)):
            with (self._folder / f"rank{rank}.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                tail = log.read().decode(errors="replace")
            found.append(
                RankEnd(
                    tuple(self._events(rank)),
                    self._statuses.get(rank),
                    tail,
                    self._ended_at.get(rank, 0.0),
                )
            )
        return tuple(found)
