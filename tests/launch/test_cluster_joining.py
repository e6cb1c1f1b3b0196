"""A box that joins a head and leaves it, on fakes."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.cluster import Cluster
from rig.launch.cluster_command import join_main
from rig.launch.cluster_join import JoinOptions, joined
from rig.launch.command_line import logs_folder
from rig.launch.supervise import FAILED, LostWhileServing

from .checks import alive
from .clusters import cluster_of, installed
from .conftest import FakeEngine


@pytest.fixture
def cluster(engine: FakeEngine, tmp_path: Path) -> Cluster:
    return cluster_of(engine, tmp_path)


@pytest.fixture
def head(cluster: Cluster, tmp_path: Path) -> socket.socket:
    """A head that listens, and whose tables the fake Ray finds beside the token."""
    listening = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "r").mkdir()
    state = {"devices": 1, "actors": [], "labels": dict(cluster.labels)}
    (tmp_path / "r" / "fake_state.json").write_text(json.dumps(state))
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    (tmp_path / "r" / "ray_current_cluster").write_text(address)
    return listening


@pytest.fixture
def joining(
    head: socket.socket,
    engine: FakeEngine,
    cluster: Cluster,
    runtime: Path,
    seen: Path,
    tmp_path: Path,
) -> JoinOptions:
    return JoinOptions(
        head=f"127.0.0.1:{head.getsockname()[1]}",
        python=engine.python,
        log_folder=tmp_path / "join-logs",
        cluster=replace(cluster, address="127.0.0.2", labels={}),
        rehearse=True,
    )


def test_a_box_joins_and_leaves_nothing(
    joining: JoinOptions, cluster: Cluster, runtime: Path, seen: Path
) -> None:
    steps: list[str] = []
    with joined(joining, check_installation=installed, progress=steps.append) as node:
        node.check_alive()
        pids = node.pids()
        token = cluster.token_file.read_text()
        shown = Path("/proc").glob("[0-9]*/cmdline")
        lines = b"".join(path.read_bytes() for path in shown if alive(int(path.parent.name)))
        assert token.encode() not in lines
    assert steps[-1].startswith("stopped: ")
    assert not [pid for pid in pids if alive(pid)]
    assert list(runtime.iterdir()) == []
    called = json.loads((seen / "ray.json").read_text())
    assert called["argv"][:2] == ["start", f"--address={joining.head}"]
    assert "--node-ip-address=127.0.0.2" in called["argv"]
    assert "$" not in "".join(called["argv"])
    assert called["ray_variables"]["RAY_AUTH_TOKEN_PATH"] == str(cluster.token_file)
    assert token not in json.dumps(called)
    assert token not in "".join(steps)


def test_a_head_of_another_build_is_refused_by_name(
    joining: JoinOptions, tmp_path: Path, seen: Path
) -> None:
    file = tmp_path / "r" / "fake_state.json"
    state = json.loads(file.read_text())
    state["labels"]["rig-series"] = "6" * 32
    file.write_text(json.dumps(state))
    with (
        pytest.raises(RigError, match="is of another build than this box") as caught,
        joined(joining, check_installation=installed),
    ):
        pytest.fail("joined another build")
    assert caught.value.where == f"patch series: {'5' * 32} here, {'6' * 32} there"
    assert not (seen / "ray.json").exists()


def test_a_head_that_refuses_the_token(
    joining: JoinOptions, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STATE", "refuses")
    with (
        pytest.raises(RigError, match="refuses this box's token") as caught,
        joined(joining, check_installation=installed),
    ):
        pytest.fail("joined with a wrong token")
    assert caught.value.where == joining.cluster.token_file
    assert not (seen / "ray.json").exists()


def test_a_box_that_is_in_the_cluster_already_is_refused(
    joining: JoinOptions, cluster: Cluster, tmp_path: Path, seen: Path
) -> None:
    """Its cards would be counted twice, and two ranks would meet on one card."""
    file = tmp_path / "r" / "fake_state.json"
    state = json.loads(file.read_text())
    before = {
        "Alive": True,
        "NodeID": "n2",
        "NodeManagerAddress": "127.0.0.2",
        "NodeManagerHostname": "boxb",
        "Resources": {"GPU": 1},
        "Labels": dict(cluster.labels),
    }
    file.write_text(json.dumps(state | {"nodes": [before]}))
    with (
        pytest.raises(RigError, match=r"127\.0\.0\.2 \(boxb\) is in the cluster already"),
        joined(joining, check_installation=installed),
    ):
        pytest.fail("joined twice")
    assert not (seen / "ray.json").exists()
    file.write_text(json.dumps(state | {"nodes": [before | {"Alive": False}]}))
    with joined(joining, check_installation=installed) as node:
        node.check_alive()


def test_no_head_there(joining: JoinOptions, head: socket.socket, seen: Path) -> None:
    head.close()
    with (
        pytest.raises(RigError, match="no head answers at"),
        joined(joining, check_installation=installed),
    ):
        pytest.fail("joined nobody")
    assert not (seen / "ray.json").exists()


def test_logs_of_a_box_that_joins_again_and_again_do_not_pile_up(
    joining: JoinOptions, head: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("rig.launch.cluster_command.plan_join", lambda _: joining)
    for number in range(25):
        (logs_folder() / f"join-20260101-{number:06}-1").mkdir(parents=True)
        (logs_folder() / f"serve-20260101-{number:06}-1").mkdir()
    assert join_main([]) == FAILED
    for kind in ("join", "serve"):
        left = sorted(folder.name for folder in logs_folder().glob(f"{kind}-*"))
        assert left == [f"{kind}-20260101-{number:06}-1" for number in range(5, 25)]


@pytest.mark.parametrize("head_lives", [True, False])
def test_a_joined_box_whose_ray_ends(
    joining: JoinOptions, head: socket.socket, runtime: Path, seen: Path, head_lives: bool
) -> None:
    said = "this box's Ray ended by itself" if head_lives else "the head at 127.0.0.1:.* went away"
    with (
        pytest.raises(LostWhileServing, match=said),
        joined(joining, check_installation=installed) as node,
    ):
        if not head_lives:
            head.close()
        os.kill(json.loads((seen / "ray.json").read_text())["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            time.sleep(0.02)
            node.check_alive()
    assert list(runtime.iterdir()) == []


def test_a_head_that_falls_silent_is_given_up_by_a_box_whose_ray_still_runs(
    joining: JoinOptions,
    head: socket.socket,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rig.launch.cluster_join._LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("rig.launch.cluster_join.HEAD_GONE_S", 0.5)
    with (
        pytest.raises(LostWhileServing, match="went away"),
        joined(joining, check_installation=installed) as node,
    ):
        node.check_alive()
        head.close()
        began = time.monotonic()
        node.check_alive()  # once is not for ever
        while time.monotonic() - began < 10:
            time.sleep(0.02)
            node.check_alive()
    assert time.monotonic() - began > 0.5
    assert list(runtime.iterdir()) == []
