"""Two servers on one box, each with its own cluster: what one loses is named and costs the other
nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.processes import read_process
from rig.launch.serve import RunningServer, plan_serve, serving
from rig.launch.supervise import LostWhileServing
from rig.launch.supervise_health import real_request
from rig.rehearsal.client import ask
from rig.rehearsal.compare import compare
from rig.rehearsal.stage import SERVED_NAME, serve_options

from .conftest import Stage

pytestmark = [pytest.mark.engine, pytest.mark.full]
NOTICED_WITHIN_S = 60


def watch(server: RunningServer) -> None:
    """Look after a server until it is lost, as `serve` does."""
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while time.monotonic() < deadline:
        server.check_alive()
        time.sleep(0.1)
    pytest.fail("nobody noticed")


def one_named(server: RunningServer, name: str) -> int:
    (pid,) = [p for p in server.pids() if (one := read_process(p)) and one.name == name]
    return pid


def test_a_rank_and_a_head_that_die(stage: Stage) -> None:
    question = stage.questions["astronaut"]
    options = serve_options(stage.environment, stage.model, stage.folder / "logs one", ranks=1)
    other = replace(
        serve_options(stage.environment, stage.model, stage.folder / "logs two", ranks=2),
        port=None,
    )
    with (
        pytest.raises(LostWhileServing) as head_lost,
        serving(plan_serve(options)) as first,
    ):
        with (
            pytest.raises(LostWhileServing) as rank_lost,
            serving(plan_serve(other)) as second,
        ):
            assert first.ray_address != second.ray_address
            assert first.port != second.port
            ours = set(second.pids())
            assert not ours & set(first.pids())
            for server in (first, second):
                answer = ask(server.base_url, SERVED_NAME, question)
                assert compare(answer, stage.oracle["astronaut"]).equal
                real_request(server.base_url)
            rank = second.ranks()[1]
            url = second.base_url
            failed: list[RigError] = []

            def long_request() -> None:
                try:
                    ask(url, SERVED_NAME, question, tokens=800, timeout=90)
                except RigError as error:
                    failed.append(error)

            asking = threading.Thread(target=long_request)
            asking.start()
            time.sleep(1.0)
            os.kill(rank.pid, signal.SIGKILL)
            watch(second)
        asking.join(60)
        assert f"rank 1 (pid {rank.pid})" in rank_lost.value.what
        assert failed, "a request that lost a rank was answered"
        assert second.stopped is not None and second.stopped.left == ()
        assert not [pid for pid in ours if Path(f"/proc/{pid}").exists()]
        with pytest.raises(RigError, match="cannot be asked"):
            real_request(url)

        # The other one has not noticed.
        first.check_alive()
        answer = ask(first.base_url, SERVED_NAME, question)
        assert compare(answer, stage.oracle["astronaut"]).equal
        os.kill(one_named(first, "gcs_server"), signal.SIGKILL)
        watch(first)
    assert head_lost.value.what.startswith(("Ray ended", "the engine ended"))
    assert first.stopped is not None and first.stopped.left == ()
