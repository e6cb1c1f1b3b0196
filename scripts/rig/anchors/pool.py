"""Workers that judge one architecture after the other; one that dies or hangs is replaced."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rig.errors import RigError

Answer = dict[str, Any]
_ENDED = object()


@dataclass(frozen=True)
class WorkerCommand:
    """How a worker is started.

    Attributes:
        command: it answers with a line of JSON when it is ready, and one for each line it is given.
        env: its whole environment.
        log: where its standard error goes.
        package: the folder whose `vllm` it must import; any when None.
        ready_seconds: until it is ready.
        answer_seconds: until it has answered.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    package: Path | None = None
    ready_seconds: float = 180.0
    answer_seconds: float = 60.0


class _Worker:
    def __init__(self, how: WorkerCommand) -> None:
        self.how = how
        self.log: IO[bytes] = how.log.open("ab")
        self.process = subprocess.Popen(
            how.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=dict(how.env),
            text=True,
            start_new_session=True,
        )
        self.lines: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(_ENDED)

    def ask(self, text: str, seconds: float) -> Answer | str:
        """Its answer, or what became of it instead."""
        assert self.process.stdin is not None
        try:
            if text:
                self.process.stdin.write(f"{text}\n")
                self.process.stdin.flush()
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            return f"hangs: no answer within {seconds:g} s"
        except BrokenPipeError:
            line = _ENDED
        if line is _ENDED:
            return f"crashes: {_status(self.process.wait(timeout=30))}"
        answer: Answer = json.loads(line)
        return answer

    def end(self) -> None:
        with suppress(ProcessLookupError):  # with it, what a model may have started
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.log.close()


def _status(code: int) -> str:
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


class Pool:
    """One worker at a time, made when it is needed: `with Pool(how) as pool`."""

    def __init__(self, how: WorkerCommand) -> None:
        self.how = how
        self.said: Answer = {}
        """What the last worker said when it was ready."""
        self._worker: _Worker | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, text: str, seconds: float | None = None) -> Answer | str:
        """The worker's answer; or what became of it instead, and the next ask gets a new one.

        Raises:
            RigError: a worker does not get ready.
        """
        worker = self._worker or self._start()
        answer = worker.ask(text, seconds or self.how.answer_seconds)
        if isinstance(answer, str):
            self._end()
        return answer

    def _start(self) -> _Worker:
        self._worker = worker = _Worker(self.how)
        said = worker.ask("", self.how.ready_seconds)
        if isinstance(said, str):
            self._end()
            raise RigError(
                f"the catcher does not start: it {said}",
                where=self.how.log,
                detail="\n".join(self.how.log.read_text("utf-8", "replace").splitlines()[-25:]),
                next_step="this vLLM cannot be imported in the engine's environment: see above",
            )
        self.said = said
        package = self.how.package
        # Its files may be links to another folder: only their own place says where it is.
        if package and Path(said["file"]).parents[1] != package.resolve():
            self._end()
            raise RigError(
                "another vLLM was imported than the one to judge",
                where=said["file"],
                next_step=f"it should be in {package}",
            )
        return worker

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None
