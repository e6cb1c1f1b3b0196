"""What a launch over several boxes is made of: addresses, tokens, plans, and who is missing."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.cluster import (
    BUILD,
    PYTHON,
    RAY,
    SERIES,
    Cluster,
    differences,
    foreign_variables,
    head_plan,
    join_command,
    join_environment,
    network_variables,
    ray_variables,
)
from rig.launch.cluster_command import _ray_port, head_main, node_rows
from rig.launch.cluster_line import plan_head, plan_join, take
from rig.launch.cluster_network import (
    Interface,
)
from rig.launch.cluster_token import make_token_file
from rig.launch.cluster_watch import missing
from rig.launch.plan import ServeOptions, ServePlan, plan_serve
from rig.launch.ray_state import Node
from rig.launch.running import Rank

LABELS = {BUILD: "0.33.0-rig.1", SERIES: "ab12", RAY: "2.60.0", PYTHON: "3.12"}
FOUND = [
    Interface("lo", "127.0.0.1"),
    Interface("eth0", "10.0.0.1"),
    Interface("ib0", "10.1.0.1"),
    Interface("ib0", "10.1.0.2"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(
        address="10.0.0.1",
        interface="eth0",
        nodes=2,
        cards=4,
        token_file=tmp_path / "token",
        labels=LABELS,
    )


def plan(**changes: object) -> ServePlan:
    options = ServeOptions(
        model="some/model",
        python=Path("/e/bin/python"),
        log_folder=Path("/logs"),
        ranks=4,
        extra_arguments=("-pp", "2"),
        rehearse=True,
    )
    return plan_serve(replace(options, **changes), inherited={})  # type: ignore[arg-type]


def node(address: str, devices: int = 4) -> Node:
    return Node(address, True, address, "host", devices, LABELS)


def test_the_network_is_the_one_that_was_named() -> None:
    assert network_variables("10.0.0.1", "eth0") == {
        "VLLM_HOST_IP": "10.0.0.1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "=eth0",
    }


def test_the_plan_of_a_head(cluster: Cluster) -> None:
    planned = head_plan(plan(), cluster)
    command = planned.ray_command
    assert planned.devices == 8
    assert "--node-ip-address=10.0.0.1" in command
    assert "--num-gpus=4" in command
    assert "--port=26379" in command
    assert f"--labels={BUILD}=0.33.0-rig.1,{PYTHON}=3.12,{RAY}=2.60.0,{SERIES}=ab12" == command[-1]
    for environment in (planned.ray_environment, planned.engine_environment):
        assert environment["VLLM_HOST_IP"] == "10.0.0.1"
        assert environment["NCCL_SOCKET_IFNAME"] == "=eth0"
        assert environment["RAY_AUTH_MODE"] == "token"
        assert environment["RAY_AUTH_TOKEN_PATH"] == str(cluster.token_file)
        assert environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "1"
        assert "127.0.0.1" not in environment.values()
    assert not [word for word in command if "127.0.0.1" in word]
    why = {reason.subject: reason.why for reason in planned.reasons}
    for part in [*network_variables("", ""), *ray_variables(cluster.token_file), *command[4:]]:
        assert part in why or part.startswith(("--labels", "--temp", "--ray-client")), part
    assert "loopback" not in why["VLLM_HOST_IP"]
    # The server itself stays where it was: on loopback, unless the user says otherwise.
    assert planned.host == "127.0.0.1"
    assert planned.vllm_arguments == plan().vllm_arguments


def test_a_cluster_needs_ray_and_room(cluster: Cluster) -> None:
    with pytest.raises(RigError, match="only Ray reaches other boxes"):
        head_plan(plan(executor="mp"), cluster)
    with pytest.raises(RigError, match="8 ranks do not fit on 2 boxes of 3 cards"):
        head_plan(plan(), replace(cluster, cards=3))


def test_a_box_that_joins(cluster: Cluster) -> None:
    cluster = replace(cluster, address="10.0.0.2", interface="ib0", cards=2)
    command = join_command(Path("/e/bin/ray"), "10.0.0.1:26379", cluster, 1 << 28)
    assert command[:4] == [
        *("/e/bin/ray", "start", "--address=10.0.0.1:26379", "--node-ip-address=10.0.0.2")
    ]
    assert "--temp-dir=$RIG_RUN/r" in command
    environment = join_environment(cluster, "/e/bin", rehearse=False)
    assert environment["VLLM_HOST_IP"] == "10.0.0.2"
    assert environment["GLOO_SOCKET_IFNAME"] == "ib0"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["VLLM_RPC_BASE_PATH"] == "$RIG_RUN"
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(cluster.token_file)
    assert "CUDA_DEVICE_ORDER" not in join_environment(cluster, "/e/bin", rehearse=True)


def test_variables_of_another_ray_are_not_inherited() -> None:
    inherited = {"RAY_ADDRESS": "x", "RAY_AUTH_TOKEN": "s", "VLLM_RIG_PYTHON": "p", "PATH": "/"}
    assert foreign_variables(inherited) == ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "VLLM_RIG_PYTHON")


def test_builds_are_told_apart_by_name() -> None:
    assert differences(LABELS, dict(LABELS)) == []
    other = {**LABELS, SERIES: "cd34"}
    assert differences(LABELS, other) == ["patch series: ab12 here, cd34 there"]
    assert differences(LABELS, {})[0] == "vLLM: 0.33.0-rig.1 here, unknown there"
    assert differences({}, {}) != []  # two unknown builds are not the same one


def test_who_is_missing(cluster: Cluster) -> None:
    assert missing(cluster, (node("10.0.0.1"), node("10.0.0.2"))) == ""
    assert missing(replace(cluster, nodes=3), (node("10.0.0.1"), node("10.0.0.2"))) == (
        "1 of 3 nodes (4 of 12 devices) are missing; "
        "here: 10.0.0.1 (host) with 4, 10.0.0.2 (host) with 4"
    )
    with pytest.raises(RigError, match=r"10.0.0.2 \(host\) brings 2 devices and 4 are needed"):
        missing(cluster, (node("10.0.0.1"), node("10.0.0.2", 2)))
    with pytest.raises(RigError, match=r"10.0.0.2 \(host\) is of another build") as caught:
        missing(
            cluster, (node("10.0.0.1"), replace(node("10.0.0.2"), labels={**LABELS, SERIES: "ff"}))
        )
    assert caught.value.where == "patch series: ab12 here, ff there"


def test_where_the_ranks_are() -> None:
    ranks = [
        Rank(number, 1, "", "n", "a", 0, "" if number < 2 else "10.0.0.2 (b)")
        for number in range(4)
    ]
    rows = node_rows(ranks, 2, "10.0.0.1")
    assert rows == [
        "rank 0   -> 10.0.0.1 (this box), stage 0",
        "rank 1   -> 10.0.0.1 (this box), stage 0",
        "rank 2   -> 10.0.0.2 (b), stage 1",
        "rank 3   -> 10.0.0.2 (b), stage 1",
    ]
    *_, warning = node_rows(ranks, 4, "10.0.0.1")
    assert warning.startswith("warning: stage 0 lies on 2 boxes")


def test_options_are_taken_wherever_they_stand() -> None:
    words = ["--nodes", "3", "m", "--cards=2", "--seed", "--nodes-of-vllm"]
    line = take(words, ("--nodes", "--cards"))
    assert line.values == {"--nodes": "3", "--cards": "2"}
    assert line.rest == ["m", "--seed", "--nodes-of-vllm"]
    with pytest.raises(RigError, match="--nodes needs a value"):
        take(["--nodes"], ("--nodes",))


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "one address of a head is needed"),
        (["a", "b"], "one address of a head is needed"),
        (["--hosts"], "one address of a head is needed"),
        (["10.0.0.1"], "no token file was named"),
        (["10.0.0.1", "--token-file", "/not/there"], "the token file cannot be read"),
    ],
)
def test_a_join_that_makes_no_sense(words: list[str], said: str) -> None:
    with pytest.raises(RigError, match=said):
        plan_join(words)


def test_a_join_towards_loopback_is_refused(tmp_path: Path) -> None:
    make_token_file(tmp_path / "token")
    words = ["127.0.0.1", "--token-file", str(tmp_path / "token"), "--cards", "1"]
    with pytest.raises(RigError, match="no other box can reach this one's loopback"):
        plan_join(words)


@pytest.fixture
def one_outward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.launch.cluster_line.interfaces", lambda: FOUND)


def test_a_dry_run_of_a_head_starts_nothing(
    one_outward: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--interface", "eth0", "--rig", "4x3090", "--nodes", "3", "--dry-run", "some/model"]
    words += ["--python", "/bin/sh", "--token-file", str(tmp_path / "token")]
    assert head_main(words) == 0
    said = capsys.readouterr().out
    assert "scripts/ray-join.sh 10.0.0.1:26379 --token-file FILE" in said
    assert "export VLLM_HOST_IP=10.0.0.1" in said
    assert "--num-gpus=4 " in said
    assert "-tp 4 -pp 3" in said
    assert "127.0.0.1:" not in said
    assert not (tmp_path / "token").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--rig", "4x3090", "m"], "say which address"),
        (["--interface", "eth0", "--nodes", "1", "--rig", "4x3090", "m"], "one box is no cluster"),
        (["--interface", "eth0", "--nodes", "two", "--rig", "4x3090", "m"], "--nodes is 'two'"),
        (["--interface", "eth0", "--rig", "4x3090"], "no model was named"),
        (["--interface", "eth0", "m"], "no rig was named"),
        (["--interface", "eth0", "--ray-port", "70000", "--rig", "4x3090", "m"], "70000"),
        (["--interface", "eth0", "--rig", "4x3090", "m", "-tp", "4"], "without --pipeline"),
    ],
)
def test_a_head_that_makes_no_sense(one_outward: None, words: list[str], said: str) -> None:
    with pytest.raises(RigError, match=said):
        plan_head(words)


def test_wrong_usage_has_its_own_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert head_main(["m"]) == 2
    assert "say which address" in capsys.readouterr().err


def test_a_port_of_ray_that_is_taken_is_said() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RigError, match=r"is not free on 127\.0\.0\.1") as caught,
    ):
        _ray_port("127.0.0.1", taken.getsockname()[1])
    assert "--ray-port" in str(caught.value.next_step)
