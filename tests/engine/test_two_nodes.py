"""Two boxes serve one model: an image is answered rightly, and a box that goes away is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from enum import Enum
from pathlib import Path

import pytest

import rig
from rig.errors import RigError
from rig.launch.processes import marked, read_process
from rig.launch.ray_state import ask_cluster
from rig.launch.runs import MARK_VARIABLE
from rig.launch.supervise import LOST
from rig.rehearsal.client import ask
from rig.rehearsal.compare import compare
from rig.rehearsal.exchange import ANSWER_TOKENS
from rig.rehearsal.stage import SERVED_NAME, serve_options

from .conftest import Stage
from .namespaces import Box, two_boxes, why_not

pytestmark = pytest.mark.engine

SCRIPTS = Path(rig.__file__).parents[1]
PORT = 18123
UP_WITHIN_S = 240
# Ray's own patience with a silent node, cut by cluster.py, and the stop of everything.
NAMED_WITHIN_S = 60
_CALL = "import sys; from rig.launch.cluster_command import {0}; sys.exit({0}(sys.argv[1:]))"


class Ending(Enum):
    """How the second box goes away."""

    CABLE_CUT = "error: the head at {}:26379 went away"
    RAY_KILLED = "error: this box's Ray ended by itself"

    @property
    def joined_says(self) -> str:
        return self.value


class Command:
    """`ray-head` or `ray-join` in a box, and what it says."""

    def __init__(self, box: Box, function: str, log: Path, runtime: Path, *words: str) -> None:
        self.log = log
        self._file = log.open("wb")
        self.process = subprocess.Popen(
            box.command(sys.executable, "-c", _CALL.format(function), *words),
            stdout=self._file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": str(SCRIPTS),
                "OMP_NUM_THREADS": "1",
                "VLLM_RIG_RUNTIME": str(runtime),
            },
        )

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.said:
            assert self.process.poll() is None, self.said[-3000:]
            assert time.monotonic() < deadline, self.said[-3000:]
            time.sleep(0.2)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._file.close()


def raylet_of(runtime: Path) -> int:
    """The Ray node process of the one run in a folder."""
    for state in runtime.glob("*/state.json"):
        mark = state.read_text().partition('"mark": "')[2].partition('"')[0]
        for process in marked(MARK_VARIABLE, mark):
            if process.name == "raylet":
                return process.pid
    pytest.fail("no raylet runs there")


def gone(pid: int) -> bool:
    process = read_process(pid)
    return process is None or not process.alive


@pytest.mark.parametrize(
    "tensor, pipeline, ending",
    [
        # What nobody should do, but vLLM offers; and the slower way to go away.
        pytest.param(2, 1, Ending.CABLE_CUT, id="TP2", marks=pytest.mark.full),
        pytest.param(1, 2, Ending.RAY_KILLED, id="PP2"),
    ],
)
def test_two_boxes(
    stage: Stage, tmp_path: Path, tensor: int, pipeline: int, ending: Ending
) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    runtimes = [Path(f"/tmp/rig{os.getpid()}{end}") for end in "ab"]
    for runtime in runtimes:
        runtime.mkdir(mode=0o700)
    options = serve_options(stage.environment, stage.model, tmp_path / "head", ranks=1)
    common = ("--rehearse", "--python", str(options.python), "--token-file", str(tmp_path / "t"))
    with two_boxes() as (first, second):
        head = Command(
            *(first, "head_main", tmp_path / "head.out", runtimes[0]),
            *("--interface", first.interface, "--rig", "1x3090", *common),
            *("--log-folder", str(tmp_path / "head"), "--join-timeout", "60"),
            *(options.model, *options.extra_arguments),
            *("-tp", str(tensor), "-pp", str(pipeline), "--port", str(PORT)),
        )
        join: Command | None = None
        try:
            head.wait_for("1 of 2 nodes (1 of 2 devices) are missing", 60)
            join = Command(
                *(second, "join_main", tmp_path / "join.out", runtimes[1]),
                *(first.address, "--cards", "1", *common, "--log-folder", str(tmp_path / "join")),
            )
            join.wait_for(f"joined {first.address}:26379 as {second.address}", 60)
            head.wait_for("rank 1   ->", UP_WITHIN_S)
            assert f"rank 0   -> {first.address} (this box), stage 0" in head.said
            assert f"rank 1   -> {second.address}" in head.said
            stranger = tmp_path / "stranger"
            stranger.write_text("0" * 64)
            check_token_is_needed(first, options.python, stranger)

            url = f"http://127.0.0.1:{PORT}"
            question = stage.questions["astronaut"]
            answer = first.call(lambda: ask(url, SERVED_NAME, question))
            found = compare(answer, stage.oracle["astronaut"])
            assert found.tokens == ANSWER_TOKENS
            assert found.equal, found.difference

            failed: list[BaseException] = []

            def long_request() -> None:
                try:
                    first.call(lambda: ask(url, SERVED_NAME, question, tokens=800, timeout=90))
                except RigError as error:
                    failed.append(error)

            asking = threading.Thread(target=long_request)
            asking.start()
            time.sleep(1.0)
            assert asking.is_alive(), "the request was too short to be interrupted"
            if ending is Ending.CABLE_CUT:
                second.cut()
            else:
                os.kill(raylet_of(runtimes[1]), signal.SIGKILL)
            assert head.process.wait(NAMED_WITHIN_S) == LOST, head.said[-3000:]
            assert f"error: node {second.address}" in head.said
            assert "went away, and with it rank 1" in head.said
            assert "nothing is left" in head.said
            asking.join(60)
            assert failed, "a request that lost a box was answered as if it had not"
            assert join.process.wait(NAMED_WITHIN_S) == LOST, join.said[-3000:]
            assert ending.joined_says.format(first.address) in join.said
            assert "nothing is left" in join.said
        finally:
            for command in (head, join):
                if command is not None:
                    command.end()
    for runtime in runtimes:
        assert list(runtime.iterdir()) == []
        runtime.rmdir()


def check_token_is_needed(box: Box, python: Path, token: Path) -> None:
    """A program with another token learns nothing from the head."""
    token.chmod(0o600)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with pytest.raises(RigError, match="does not answer") as caught:
        box.call(
            lambda: ask_cluster(
                python,
                f"{box.address}:26379",
                inherited | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)},
                timeout_s=30,
            )
        )
    assert "oken" in str(caught.value.detail)
