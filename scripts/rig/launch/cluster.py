"""One cluster over several boxes, as a pure plan: tensor parallel inside, pipeline across.

On one box everything stays on loopback. Over boxes Ray, gloo and NCCL must talk over a network:
its address is always said by the user, and nothing of that traffic is encrypted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig.errors import RigError
from rig.launch.decide import Reason
from rig.launch.plan import ServePlan
from rig.wheel.provenance import Provenance

# Not 6379: that is where everybody else's Ray (and Redis) listens.
DEFAULT_RAY_PORT = 26379
NOT_ENCRYPTED = (
    "Ray's, gloo's and NCCL's traffic between the boxes is not encrypted, and some of their ports "
    "listen on every interface of a box: use a network of your own, behind a firewall"
)
# Labels that each node of ours says of itself when it joins.
BUILD, SERIES, RAY, PYTHON = "rig-build", "rig-series", "rig-ray", "rig-python"
_MEANING = {
    BUILD: "vLLM",
    SERIES: "patch series",
    RAY: "Ray",
    PYTHON: "Python",
}
# A node is called lost after about period x threshold + timeout = 8 s without an answer, in place
# of Ray's 25 s: a request that waits for a dead box would otherwise look like a slow one.
_HEALTH = {
    "RAY_health_check_period_ms": "1500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}
# A joined box whose head is gone gives up after this many seconds, in place of Ray's 60.
_GIVE_UP_S = "10"


_SILENT = "a box that is silent is given up after about 8 s, not 25"
_REASONS = (
    *(Reason("environment", name, _SILENT) for name in _HEALTH),
    Reason(
        "environment",
        "RAY_gcs_rpc_server_reconnect_timeout_s",
        "a box whose head is gone gives up after 10 s, not 60",
    ),
)


@dataclass(frozen=True)
class Cluster:
    """What a launch over several boxes wants.

    Args:
        address: this box's address, which the others reach it by.
        interface: the network interface that has it.
        nodes: how many boxes, this one included.
        cards: how many devices each of them brings.
        labels: what each box must say of its build.
        token_file: Ray's token, the same file on every box.
        join_timeout_s: how long the other boxes may take to join.
    """

    address: str
    interface: str
    nodes: int
    cards: int
    token_file: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    port: int = DEFAULT_RAY_PORT
    join_timeout_s: float = 600.0

    @property
    def join_command(self) -> str:
        return f"scripts/ray-join.sh {self.address}:{self.port} --token-file FILE"


def labels_of(provenance: Provenance, ray: str | None, python: str) -> dict[str, str]:
    """What a node says of its build; each value fits Ray's rules for labels (63 characters)."""
    told = {
        BUILD: provenance.version,
        SERIES: provenance.series[:32],
        RAY: ray or "none",
        PYTHON: python,
    }
    return {name: re.sub(r"[^A-Za-z0-9_.-]", "-", value)[:63] for name, value in told.items()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Where two nodes' builds differ, by name; empty when they may serve together."""
    return [
        f"{meaning}: {here.get(name, 'unknown')} here, {there.get(name, 'unknown')} there"
        for name, meaning in _MEANING.items()
        if name not in here or here[name] != there.get(name)
    ]


def network_variables(address: str, interface: str) -> dict[str, str]:
    """What makes vLLM, gloo and NCCL use one address and interface of this box."""
    return {
        "VLLM_HOST_IP": address,
        "GLOO_SOCKET_IFNAME": interface,
        # "=": exactly this one; NCCL takes a bare name as the beginning of one.
        "NCCL_SOCKET_IFNAME": f"={interface}",
    }


def ray_variables(token_file: Path) -> dict[str, str]:
    """Ray's own variables on each box of a cluster."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        # On loopback clusters this is "0" and puts every socket of Ray there.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_gcs_rpc_server_reconnect_timeout_s": _GIVE_UP_S,
        **_HEALTH,
    }


def label_argument(labels: Mapping[str, str]) -> str:
    return "--labels=" + ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def head_plan(plan: ServePlan, cluster: Cluster) -> ServePlan:
    """The plan of a launch on one box, made one over several.

    Raises:
        RigError: it cannot be spread: no Ray, or more ranks than the boxes have cards.
    """
    if not plan.ray_command:
        raise RigError("only Ray reaches other boxes", next_step="leave --executor mp out")
    if plan.devices > cluster.nodes * cluster.cards:
        raise RigError(
            f"{plan.devices} ranks do not fit on {cluster.nodes} boxes of {cluster.cards} cards",
            next_step="give more boxes (--nodes), or smaller -tp and -pp",
        )
    variables = {
        **network_variables(cluster.address, cluster.interface),
        **ray_variables(cluster.token_file),
    }
    changed = {
        "--node-ip-address": cluster.address,
        "--port": str(cluster.port),
        "--num-gpus": str(cluster.cards),
    }
    command = [_changed(argument, changed) for argument in plan.ray_command]
    if cluster.labels:  # a dry run knows of none
        command.append(label_argument(cluster.labels))
    why = {
        "VLLM_HOST_IP": "the address that you gave: the boxes find each other there",
        "GLOO_SOCKET_IFNAME": "the interface of that address",
        "NCCL_SOCKET_IFNAME": "the interface of that address, and no other",
        "RAY_AUTH_TOKEN_PATH": "the token that every box of the cluster has",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "other boxes join",
    }
    said = {
        "--node-ip-address": "the address that you gave",
        "--port": "where the other boxes join",
        "--num-gpus": "this box's share of the ranks",
    }
    reasons = [
        replace(reason, why=why[reason.subject]) if reason.subject in why else reason
        for reason in plan.reasons
        # A variable of the network that the user has set "would open this box": here it is open.
        if not (reason.kind == "conflict" and reason.subject in why)
    ]
    return replace(
        plan,
        options=replace(plan.options, allow_open_sockets=True),
        ray_command=tuple(command),
        ray_environment={**plan.ray_environment, **variables},
        engine_environment={**plan.engine_environment, **variables},
        reasons=(
            *reasons,
            *(Reason("ray", f"{name}={changed[name]}", reason) for name, reason in said.items()),
            *_REASONS,
        ),
    )


def _changed(argument: str, values: Mapping[str, str]) -> str:
    name, equals, _ = argument.partition("=")
    return f"{name}={values[name]}" if equals and name in values else argument


def join_command(program: Path, head: str, cluster: Cluster, object_store_bytes: int) -> list[str]:
    """The whole command of a box that joins, with `$RIG_RUN` to be filled in."""
    return [
        str(program),
        "start",
        f"--address={head}",
        f"--node-ip-address={cluster.address}",
        f"--num-gpus={cluster.cards}",
        "--block",
        "--disable-usage-stats",
        f"--object-store-memory={object_store_bytes}",
        "--temp-dir=$RIG_RUN/r",
        label_argument(cluster.labels),
    ]


def join_environment(cluster: Cluster, programs: str, rehearse: bool) -> dict[str, str]:
    """The environment of a box that joins: what its ranks must not take from the head's.

    vLLM copies the head's variables to a rank only where the rank's box has none of that name.
    """
    added = {
        **network_variables(cluster.address, cluster.interface),
        **ray_variables(cluster.token_file),
        "VLLM_RPC_BASE_PATH": "$RIG_RUN",
        "PATH": f"{programs}:$PATH",
    }
    if not rehearse:
        added["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return added


def foreign_variables(inherited: Mapping[str, str]) -> tuple[str, ...]:
    """Inherited variables that speak of another Ray, or that only these tools know."""
    return tuple(sorted(name for name in inherited if name.startswith(("RAY_", "VLLM_RIG_"))))


def parse_head(text: str) -> tuple[str, int]:
    """HOST[:PORT] of a head, as `ray-head` prints it.

    Raises:
        RigError: it is neither.
    """
    host, colon, port = text.partition(":")
    step = f"give it as the head prints it: ADDRESS:{DEFAULT_RAY_PORT}"
    if ":" in port or not host:
        raise RigError("this is no IPv4 address of a head", where=text, next_step=step)
    if not colon:
        return host, DEFAULT_RAY_PORT
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise RigError("the head's port is no port", where=text, next_step=step)
    return host, int(port)
