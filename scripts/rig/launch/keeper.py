"""The keeper: a small process that owns everything a launch starts, and outlives its launcher.

It is a subreaper, so whatever is started below it stays below it, daemons included; it watches
which shared memory files its processes use; and when it is told to stop, or its launcher is
gone, it ends all of them and removes what they left. It speaks JSON lines: one answer on
standard output for each request on standard input, and a last one when all is stopped. The end
of its input is the order to stop: a launcher that is killed gives it too.

    {"do": "start", "name": "ray", "command": [...], "set": {...}, "unset": [...], "log": PATH}
    {"do": "state"}
    {"do": "ready"}       (the engine serves: it may take its time to end)

Only the standard library is used, so that it is up in a blink.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rig.launch.limits import raise_open_files
from rig.launch.processes import Process, descendants, read_process
from rig.launch.runs import MARK_VARIABLE, Run
from rig.launch.shared_memory import inodes, remove_unused, used_by

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Files are mapped while an engine starts; later, looking at every map would only cost time.
_SAMPLE_EVERY_S = 0.5
_SAMPLE_LATER_EVERY_S = 5.0
_LATER_AFTER_S = 900.0
_LOOK_EVERY_S = 0.1
# At most this long each is asked to end before it is killed: an engine that is not ready has
# nothing to finish and often does not listen, Ray has ended its processes by then, and so on.
_PATIENCE_WHILE_LOADING_S = 3.0
_PATIENCE_WITH_RAY_S = 8.0
_PATIENCE_WITH_REST_S = 3.0
_KILL_WAIT_S = 15.0


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


class Keeper:
    """One run: its folder, its children, and the loop that serves the launcher."""

    def __init__(self, runtime: Path, launcher: int, patience_s: float) -> None:
        self._launcher = launcher
        self._patience_s = {
            "engine": min(patience_s, _PATIENCE_WHILE_LOADING_S),
            "ready engine": patience_s,
            "ray": min(patience_s, _PATIENCE_WITH_RAY_S),
            "rest": min(patience_s, _PATIENCE_WITH_REST_S),
        }
        self._run = Run(runtime)
        self._children: dict[str, int] = {}
        self._exit_codes: dict[str, int] = {}
        # A file that was there before us is not ours, whoever maps it.
        self._older_inodes = inodes()
        self._seen: set[tuple[int, int]] = set()
        self._next_sample = 0.0
        self._began = time.monotonic()
        self._stop_asked = False
        self._hurry = False

    def serve(self) -> None:
        """Answer requests until told to stop, or until nobody is left to ask."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._answer({"run": str(self._run.folder)})
        os.set_blocking(0, False)
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        buffer = b""
        try:
            while not self._stop_asked and os.getppid() == self._launcher:
                self._reap()
                self._sample()
                if not selector.select(_LOOK_EVERY_S):
                    continue
                chunk = os.read(0, 65536)
                if not chunk:
                    break
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        finally:
            self._answer(self._stop())

    def _on_signal(self, number: int, frame: object) -> None:
        self._hurry = self._stop_asked
        self._stop_asked = True

    def _answer(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone; the work goes on without it
            os.write(1, json.dumps(message).encode() + b"\n")

    def _obey(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "start":
                self._answer(self._start(request))
            case "ready":
                self._patience_s["engine"] = self._patience_s["ready engine"]
                self._answer({})
            case "state":
                processes = [p for p in descendants(os.getpid()) if p.alive]
                self._answer(
                    {
                        "exit_codes": self._exit_codes,
                        "pids": [process.pid for process in processes],
                        "shared_memory": sorted(f.path for f in self._run.state.shared_memory),
                    }
                )

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if k not in request["unset"]}
        environment |= request["set"]
        environment[MARK_VARIABLE] = self._run.state.mark
        try:
            with Path(request["log"]).open("ab") as log:
                child = subprocess.Popen(
                    request["command"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    # If even the keeper is killed, its children go at once, not at the next launch.
                    preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
                )
        except OSError as error:
            return {"error": f"{error.strerror}: {error.filename}"}
        # Reaped here by pid, with all others; Popen must not wait for it as well.
        child.returncode = 0
        self._children[request["name"]] = child.pid
        self._next_sample = 0.0
        self._sample()
        return {"pid": child.pid}

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, child in self._children.items():
                if child == pid:
                    self._exit_codes[name] = os.waitstatus_to_exitcode(status)

    def _sample(self, now: bool = False) -> None:
        """Note the processes and shared memory files of this moment, on disk if any is new."""
        if not now and time.monotonic() < self._next_sample:
            return
        late = time.monotonic() - self._began > _LATER_AFTER_S
        processes = [process for process in descendants(os.getpid()) if process.alive]
        state = self._run.state
        before = len(state.shared_memory)
        used = used_by(process.pid for process in processes)
        state.shared_memory |= {file for file in used if file.inode not in self._older_inodes}
        current = {(process.pid, process.started) for process in processes}
        self._seen |= current
        if current != state.processes or len(state.shared_memory) != before:
            state.processes = current
            # A full disk costs the next launch some knowledge, never this run its stop.
            with contextlib.suppress(OSError):
                self._run.save()
        self._next_sample = time.monotonic() + (_SAMPLE_LATER_EVERY_S if late else _SAMPLE_EVERY_S)

    def _stop(self) -> dict[str, Any]:
        self._stop_asked = True
        self._sample(now=True)
        for name in ("engine", "ray"):
            pid = self._children.get(name)
            if pid is not None and name not in self._exit_codes:
                self._signal_pid(pid, signal.SIGTERM)
                self._wait_for(name)
                if name not in self._exit_codes:
                    # Ray would wait for a driver that hangs.
                    for process in [*descendants(pid), *filter(None, [read_process(pid)])]:
                        self._signal_pid(process.pid, signal.SIGKILL)
        self._end_rest()
        removed, in_the_way = remove_unused(self._run.state.shared_memory)
        left = [f"process {p.pid} ({p.name})" for p in self._below()] + in_the_way
        if not self._below():
            self._run.remove()
            if self._run.folder.exists():
                left.append(str(self._run.folder))
        return {
            "stopped": True,
            "processes": len(self._seen),
            "removed": removed,
            "left": sorted(set(left)),
        }

    def _end_rest(self) -> None:
        for number, patience in (
            (signal.SIGTERM, self._patience_s["rest"]),
            (signal.SIGKILL, _KILL_WAIT_S),
        ):
            deadline = time.monotonic() + patience
            told: set[tuple[int, int]] = set()
            while below := self._below():
                for process in below:
                    # A process that forks while it is told to end leaves a new one to tell.
                    if (process.pid, process.started) not in told:
                        told.add((process.pid, process.started))
                        self._signal_pid(process.pid, number)
                hurried = self._hurry and number == signal.SIGTERM
                if hurried or time.monotonic() > deadline:
                    break
                self._reap()
                time.sleep(0.02)

    def _below(self) -> list[Process]:
        self._reap()
        return [process for process in descendants(os.getpid()) if process.alive]

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + self._patience_s[name]
        while name not in self._exit_codes and not self._hurry and time.monotonic() < deadline:
            self._reap()
            self._sample()
            time.sleep(0.02)

    @staticmethod
    def _signal_pid(pid: int, number: int) -> None:
        # A child that nobody but this process reaps keeps its number: no other can have it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> None:
    runtime, launcher, patience_s = sys.argv[1:]
    raise_open_files()  # the children inherit it
    try:
        keeper = Keeper(Path(runtime), int(launcher), float(patience_s))
    except OSError as error:
        print(json.dumps({"error": f"{error.strerror}: {error.filename or runtime}"}), flush=True)
        sys.exit(1)
    keeper.serve()


if __name__ == "__main__":
    main()
