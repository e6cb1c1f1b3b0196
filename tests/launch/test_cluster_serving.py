"""A head that waits for others and loses one, and a box that joins, on fakes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.cluster import BUILD, Cluster, head_plan
from rig.launch.plan import ServeOptions, ServePlan, plan_serve
from rig.launch.processes import title
from rig.launch.serve import StopSignal, serving
from rig.launch.supervise import LostWhileServing

from .checks import alive, assert_clean, nothing
from .clusters import cluster_of
from .conftest import FakeEngine


@pytest.fixture
def cluster(engine: FakeEngine, tmp_path: Path) -> Cluster:
    return cluster_of(engine, tmp_path)


@pytest.fixture
def plan(options: ServeOptions, cluster: Cluster) -> ServePlan:
    return head_plan(plan_serve(options), cluster)  # two ranks, on two boxes


def change_state(runtime: Path, change: Callable[[dict[str, object]], None]) -> None:
    (file,) = runtime.glob("*/r/fake_state.json")
    state = json.loads(file.read_text())
    change(state)
    # At once, as it is watched.
    new = file.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(file)


def other_node(cluster: Cluster, **changes: object) -> dict[str, object]:
    node = {
        "Alive": True,
        "NodeID": "n2",
        "NodeManagerAddress": "127.0.0.2",
        "NodeManagerHostname": "boxb",
        "Resources": {"GPU": 1},
        "Labels": dict(cluster.labels),
    }
    return node | changes


def joins_when_waited_for(
    runtime: Path, node: dict[str, object], steps: list[str]
) -> Callable[[str], None]:
    """A listener to a launch's progress that lets a node join once it is waited for."""

    def tell(line: str) -> None:
        if line.startswith("waiting") and not any(s.startswith("waiting") for s in steps):
            change_state(runtime, lambda state: state.update(nodes=[node]))
        steps.append(line)

    return tell


def test_a_box_that_goes_away_is_named(
    plan: ServePlan, cluster: Cluster, runtime: Path, seen: Path
) -> None:
    steps: list[str] = []
    tell = joins_when_waited_for(runtime, other_node(cluster), steps)
    with (
        pytest.raises(LostWhileServing) as caught,
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster) as server,
    ):
        waited = next(step for step in steps if step.startswith("waiting"))
        assert "1 of 2 nodes (1 of 2 devices) are missing; here: 127.0.0.1 (boxa) with 1" in waited
        assert "scripts/ray-join.sh 127.0.0.1:26379 --token-file FILE" in waited
        assert "nodes: 127.0.0.1 (boxa), 127.0.0.2 (boxb)" in steps

        def move_rank_1(state: dict[str, object]) -> None:
            actors = state["actors"]
            assert isinstance(actors, list)
            # The other box's process numbers mean nothing here.
            state["actors"] = [
                [name, 999999999, "n2"] if name.endswith("TP1") else [name, pid]
                for name, pid in actors
            ]

        change_state(runtime, move_rank_1)
        ranks = server.ranks()
        assert [rank.node for rank in ranks] == ["", "127.0.0.2 (boxb)"]
        assert ranks[1].memory_bytes == 0
        server.check_alive()
        pids = server.pids()
        gone = other_node(cluster, Alive=False, DeathReasonMessage="missed heartbeats")
        change_state(runtime, lambda state: state.update(nodes=[gone]))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            time.sleep(0.05)
            server.check_alive()
    assert caught.value.what == "node 127.0.0.2 (boxb) went away, and with it rank 1"
    assert caught.value.detail == "missed heartbeats"
    assert_clean(server, runtime, pids)


def test_an_engine_that_ends_with_a_box_does_not_hide_it(
    plan: ServePlan, cluster: Cluster, runtime: Path, seen: Path
) -> None:
    tell = joins_when_waited_for(runtime, other_node(cluster), [])
    with (
        pytest.raises(LostWhileServing, match=r"node 127.0.0.2 \(boxb\) went away"),
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster) as server,
    ):
        engine = json.loads((seen / "vllm.json").read_text())["pid"]
        os.kill(engine, signal.SIGKILL)
        while alive(engine):
            time.sleep(0.02)
        gone = other_node(cluster, Alive=False)
        later = threading.Timer(
            1.0, change_state, (runtime, lambda state: state.update(nodes=[gone]))
        )
        later.start()
        while True:
            server.check_alive()


def test_an_engine_that_ends_by_itself_is_said_to(
    plan: ServePlan,
    cluster: Cluster,
    runtime: Path,
    seen: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rig.launch.running.NODE_GONE_S", 0.5)
    tell = joins_when_waited_for(runtime, other_node(cluster), [])
    with (
        pytest.raises(LostWhileServing, match=r"the engine ended \(killed by signal 9"),
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster) as server,
    ):
        os.kill(json.loads((seen / "vllm.json").read_text())["pid"], signal.SIGKILL)
        while True:
            server.check_alive()


def test_a_watcher_that_ends_alone_is_missed(
    plan: ServePlan,
    cluster: Cluster,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rig.launch.running.RANK_GONE_S", 0.5)
    tell = joins_when_waited_for(runtime, other_node(cluster), [])
    with (
        pytest.raises(LostWhileServing, match="nobody watches the other boxes"),
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster) as server,
    ):
        (watcher,) = [pid for pid in server.pids() if "node_table" in title(pid)]
        os.kill(watcher, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            time.sleep(0.02)
            server.check_alive()


def test_waiting_for_boxes_is_bounded_and_names_what_is_missing(
    plan: ServePlan, cluster: Cluster, runtime: Path, seen: Path
) -> None:
    short = replace(cluster, join_timeout_s=1.0)
    with (
        pytest.raises(RigError, match=r"1 of 2 nodes \(1 of 2 devices\) are missing") as caught,
        serving(plan, check_installation=nothing, cluster=short),
    ):
        pytest.fail("served without the other box")
    assert "ray-join.sh" in str(caught.value.next_step)
    assert not (seen / "vllm.json").exists()
    assert list(runtime.iterdir()) == []


def test_a_box_of_another_build_is_refused_by_name(
    plan: ServePlan, cluster: Cluster, runtime: Path
) -> None:
    labels = {**cluster.labels, BUILD: "9.9.8-rig.1"}
    tell = joins_when_waited_for(runtime, other_node(cluster, Labels=labels), [])
    with (
        pytest.raises(RigError, match=r"node 127.0.0.2 \(boxb\) is of another build") as caught,
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster),
    ):
        pytest.fail("served with another build")
    assert caught.value.where == "vLLM: 9.9.9-rig.1.cpu here, 9.9.8-rig.1 there"
    assert list(runtime.iterdir()) == []


def test_a_box_that_joined_twice_is_refused_by_name(
    plan: ServePlan, cluster: Cluster, runtime: Path
) -> None:
    three = replace(cluster, nodes=3)
    twice = [other_node(cluster), other_node(cluster, NodeID="n3")]

    def tell(line: str) -> None:
        if line.startswith("waiting"):
            change_state(runtime, lambda state: state.update(nodes=twice))

    with (
        pytest.raises(RigError, match=r"127.0.0.2 \(boxb\) is in the cluster twice"),
        serving(plan, check_installation=nothing, progress=tell, cluster=three),
    ):
        pytest.fail("served with one box for two")
    assert list(runtime.iterdir()) == []


def test_a_head_whose_ray_dies_while_it_waits(
    plan: ServePlan, cluster: Cluster, runtime: Path, seen: Path
) -> None:
    def tell(line: str) -> None:
        if line.startswith("waiting"):
            os.kill(json.loads((seen / "ray.json").read_text())["pid"], signal.SIGKILL)

    with (
        pytest.raises(RigError, match="Ray ended"),
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster),
    ):
        pytest.fail("served without Ray")
    assert list(runtime.iterdir()) == []


def test_a_signal_while_it_waits(plan: ServePlan, cluster: Cluster, runtime: Path) -> None:
    def tell(line: str) -> None:
        if line.startswith("waiting"):
            os.kill(os.getpid(), signal.SIGHUP)

    with (
        pytest.raises(StopSignal, match="SIGHUP"),
        serving(plan, check_installation=nothing, progress=tell, cluster=cluster),
    ):
        pytest.fail("served in spite of the signal")
    assert list(runtime.iterdir()) == []
