"""The workers of a server: which process is which rank, and on which box."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rig.errors import RigError
from rig.launch import processes
from rig.launch.ray_state import ClusterState, worker_rank

_MP_WORKER = re.compile(r"^VLLM::Worker(?:_DP\d+)?(?:_PP(?P<pp>\d+))?(?:_TP(?P<tp>\d+))?")


@dataclass(frozen=True)
class Rank:
    """One worker as the live cluster knows it.

    Args:
        rank: its place in the tensor (and pipeline) parallel group.
        pid: its process; on this box checked to be one of this run's.
        name: the actor's name in Ray, or the process's title without Ray.
        node_id: Ray's id of the node that it runs on; "" without Ray.
        actor_id: Ray's id of the worker; "" without Ray.
        memory_bytes: its proportional share of the memory (PSS); 0 on another box, where it is
            not known.
        node: another box's address and name; "" for this one.
    """

    rank: int
    pid: int
    name: str
    node_id: str
    actor_id: str
    memory_bytes: int
    node: str = ""


def ranks_in_cluster(
    cluster: ClusterState, pids: Iterable[int], tensor: int, own: str | None
) -> list[Rank]:
    """The workers in order of rank, as a live Ray cluster knows them.

    Args:
        pids: the processes of this run on this box.
        tensor: the tensor parallel size.
        own: this box's address in a cluster of several; None when there is only one box.

    Raises:
        RigError: it names a process on this box that is not of this run.
    """
    elsewhere = {node.node_id: str(node) for node in cluster.nodes if node.address != own}
    ours = set(pids)
    found: list[Rank] = []
    for actor in cluster.actors:
        rank = worker_rank(actor.name, tensor)
        if rank is None:
            continue
        node = "" if own is None else elsewhere.get(actor.node_id, "")
        if not node and actor.pid not in ours:
            raise RigError(
                f"Ray names process {actor.pid} as rank {rank}, which is not of this run"
            )
        memory = 0 if node else processes.memory_bytes([actor.pid])
        found.append(Rank(rank, actor.pid, actor.name, actor.node_id, actor.actor_id, memory, node))
    return sorted(found, key=lambda one: one.rank)


def ranks_by_title(pids: Iterable[int], tensor: int, *, alone: bool) -> list[Rank]:
    """The workers in order of rank, by the titles that vLLM gives its own processes.

    Args:
        alone: one rank only, which then has no process of its own beside the engine's core.
    """
    found: list[Rank] = []
    for pid in pids:
        title = processes.title(pid)
        rank = _rank_of_title(title, tensor, alone)
        if rank is not None:
            found.append(Rank(rank, pid, title, "", "", processes.memory_bytes([pid])))
    return sorted(found, key=lambda one: one.rank)


def _rank_of_title(title: str, tensor: int, alone: bool) -> int | None:
    if alone and title.startswith("VLLM::EngineCore"):
        return 0
    match = _MP_WORKER.match(title)
    if match is None:
        return None
    return int(match["pp"] or 0) * tensor + int(match["tp"] or 0)
