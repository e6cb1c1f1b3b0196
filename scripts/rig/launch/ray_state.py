"""What a live cluster says of itself, asked with the engine's own Ray."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.errors import RigError

# Reads Ray's tables only: `ray.init` would add a driver and its worker processes.
CONNECT = """
import json, sys
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
state._initialize_global_state(GcsClientOptions.create(
    sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False))
def nodes():
    return [
        {"id": node["NodeID"], "alive": bool(node["Alive"]),
         "address": node.get("NodeManagerAddress", ""),
         "host": node.get("NodeManagerHostname", ""),
         "devices": int(node.get("Resources", {}).get("GPU", 0)),
         "labels": dict(node.get("Labels") or {}),
         "why": node.get("DeathReasonMessage", "")}
        for node in state.node_table()]
"""
_ASK = (
    CONNECT
    + """
print(json.dumps({
    "nodes": nodes(),
    "actors": [
        {"name": actor["Name"], "pid": actor["Pid"], "id": actor["ActorID"],
         "node": actor["Address"]["NodeID"]}
        for actor in state.actor_table(None).values() if actor["State"] == "ALIVE"
    ],
}))
"""
)
# vllm_Worker_<instance>[_TP<n>][_PP<n>]: the parts that vLLM adds only where a size is over one.
_WORKER = re.compile(r"vllm_Worker_.*?(?:_TP(?P<tp>\d+))?(?:_PP(?P<pp>\d+))?(?:_PCP\d+)?$")


@dataclass(frozen=True)
class Actor:
    """One live actor of the cluster."""

    name: str
    pid: int
    actor_id: str
    node_id: str


@dataclass(frozen=True)
class Node:
    """One node (box) that is or was in the cluster.

    Args:
        node_id: Ray's id of it.
        alive: whether it still is.
        address: the address that it gave to the others.
        host: its host name.
        devices: how many GPUs it brought.
        labels: what it said of itself when it joined.
        why: Ray's word on why it is gone.
    """

    node_id: str
    alive: bool
    address: str
    host: str
    devices: int
    labels: Mapping[str, str] = field(default_factory=dict)
    why: str = ""

    def __str__(self) -> str:
        return f"{self.address} ({self.host})" if self.host else self.address


@dataclass(frozen=True)
class ClusterState:
    """The nodes, and the actors that are alive."""

    nodes: tuple[Node, ...]
    actors: tuple[Actor, ...]

    @property
    def alive(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.alive)

    @property
    def devices(self) -> int:
        """How many GPUs the living nodes have."""
        return sum(node.devices for node in self.alive)

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(node.node_id for node in self.alive)


def nodes_of(said: list[dict[str, Any]]) -> tuple[Node, ...]:
    """The nodes as the scripts here print them."""
    return tuple(
        Node(n["id"], n["alive"], n["address"], n["host"], n["devices"], n["labels"], n["why"])
        for n in said
    )


def ask_cluster(
    python: Path, address: str, environment: Mapping[str, str], timeout_s: float = 60.0
) -> ClusterState:
    """Ask the cluster at an address, with the whole environment given (token file and all).

    Raises:
        RigError: it does not answer in time, or refuses.
    """
    try:
        done = subprocess.run(
            [python, "-c", _ASK, address],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
            env=environment,
            # Not the current folder: it is on the path of `-c` and may hold anything.
            cwd=os.sep,
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or None
        if isinstance(detail, bytes):  # of a timeout, whatever `text` says
            detail = detail.decode(errors="replace")
        raise RigError(
            "the private Ray cluster does not answer", where=address, detail=detail
        ) from error
    actors = tuple(Actor(a["name"], a["pid"], a["id"], a["node"]) for a in said["actors"])
    return ClusterState(nodes_of(said["nodes"]), actors)


def worker_rank(name: str, tensor: int) -> int | None:
    """The rank that a worker's name tells, or None for another actor.

    Args:
        name: the actor's name.
        tensor: the tensor parallel size: stages of a pipeline come after it.
    """
    match = _WORKER.match(name)
    if match is None:
        return None
    return int(match["pp"] or 0) * tensor + int(match["tp"] or 0)
