"""The launcher's side of the keeper: start it, ask it, and let it stop everything."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.errors import RigError
from rig.launch.runs import RUNTIME_VARIABLE

_SCRIPTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class KeeperState:
    """A moment of a run: who has ended (with the exit code), who runs, which files are shared."""

    exit_codes: Mapping[str, int]
    pids: tuple[int, ...]
    shared_memory: tuple[str, ...]


@dataclass(frozen=True)
class StopReport:
    """What a stop found.

    Args:
        processes: how many processes the run had in all.
        removed: the shared memory files that the engine had left and that were removed.
        left: what could not be ended or removed; empty when all is well.
    """

    processes: int
    removed: tuple[str, ...]
    left: tuple[str, ...]


class KeeperLostError(RigError):
    """The keeper ended without its report: what it kept is still there."""


class KeeperClient:
    """One keeper process, and so one run."""

    def __init__(self, runtime: Path, patience_s: float = 15.0) -> None:
        """Start a keeper and wait for its run folder.

        Args:
            runtime: the folder of all runs.
            patience_s: how long a stop asks the engine to end before it is killed.

        Raises:
            RigError: it did not come up.
        """
        environment = dict(os.environ)
        environment["PYTHONPATH"] = str(_SCRIPTS)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "rig.launch.keeper"),
                *(str(runtime), str(os.getpid()), str(patience_s)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.report: StopReport | None = None
        try:
            answer = self._read()
            if "error" in answer:
                raise RigError(
                    f"the run's folder cannot be made: {answer['error']}",
                    where=runtime,
                    next_step=f"make room there, or set {RUNTIME_VARIABLE} to another folder",
                )
            self.run_folder = Path(answer["run"])
        except BaseException:
            self._close_input()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        added: Mapping[str, str],
        removed: Iterable[str],
        log: Path,
    ) -> int:
        """Start a program below the keeper; its pid.

        Raises:
            RigError: it cannot be executed.
        """
        answer = self._ask(
            {
                "do": "start",
                "name": name,
                "command": list(command),
                "set": dict(added),
                "unset": list(removed),
                "log": str(log.absolute()),
            }
        )
        if "error" in answer:
            raise RigError(
                f"{name} cannot be started: {answer['error']}",
                where=command[0],
                next_step="an environment that was moved does not work: make it anew",
            )
        return int(answer["pid"])

    def state(self) -> KeeperState:
        """What is running now."""
        answer = self._ask({"do": "state"})
        return KeeperState(
            answer["exit_codes"], tuple(answer["pids"]), tuple(answer["shared_memory"])
        )

    def ready(self) -> None:
        """Say that the engine serves: from here on a stop gives it its full time to end."""
        self._ask({"do": "ready"})

    def stop(self) -> StopReport:
        """Stop everything; returns when it is done. Asking twice gives the same report."""
        with self._lock:
            self._close_input()
            # A signal may have cut a request short: its answer is still to come, before the last.
            while self.report is None:
                self._read()
        return self.report

    def hurry(self) -> None:
        """Cut the waiting of a stop short: whatever still runs is killed."""
        self._process.terminate()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            # If it is ending, its last answer says why, or its absence does.
            with contextlib.suppress(OSError):
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            answer = self._read()
            if self.report is not None:
                raise RigError("the launch was stopped from outside, by a signal to its keeper")
            return answer

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a request that nobody will read any more
            self._process.stdin.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise KeeperLostError(
                f"the keeper of this launch ended without a word (exit code {code})",
                next_step="launch again; was it killed? see `dmesg`",
            )
        answer: dict[str, Any] = json.loads(line)
        if answer.get("stopped"):
            self.report = StopReport(
                answer["processes"], tuple(answer["removed"]), tuple(answer["left"])
            )
            self._process.wait()
        return answer
