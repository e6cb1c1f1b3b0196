"""What the live private cluster says of itself, asked with the engine's own Ray."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError

# Reads Ray's tables only: `ray.init` would add a driver and its worker processes.
_ASK = """
import json, sys
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
state._initialize_global_state(GcsClientOptions.create(
    sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False))
nodes = [node for node in state.node_table() if node["Alive"]]
print(json.dumps({
    "devices": sum(node["Resources"].get("GPU", 0) for node in nodes),
    "nodes": [node["NodeID"] for node in nodes],
    "actors": [
        {"name": actor["Name"], "pid": actor["Pid"], "id": actor["ActorID"],
         "node": actor["Address"]["NodeID"]}
        for actor in state.actor_table(None).values() if actor["State"] == "ALIVE"
    ],
}))
"""
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
class ClusterState:
    """The devices, nodes and actors that are alive."""

    devices: int
    node_ids: tuple[str, ...]
    actors: tuple[Actor, ...]


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
        raise RigError(
            "the private Ray cluster does not answer",
            where=address,
            detail=getattr(error, "stderr", None) or None,
        ) from error
    actors = tuple(Actor(a["name"], a["pid"], a["id"], a["node"]) for a in said["actors"])
    return ClusterState(int(said["devices"]), tuple(said["nodes"]), actors)


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
