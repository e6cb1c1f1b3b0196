"""Who is in the cluster, told continuously by a small process that reads Ray's tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rig.errors import RigError
from rig.launch.cluster import Cluster, differences
from rig.launch.keeper_client import KeeperClient
from rig.launch.logs import Follower
from rig.launch.ray_state import CONNECT, Node, nodes_of

# One line of JSON whenever something changed. It needs no request and costs one connection.
_WATCH = (
    CONNECT
    + """
import time
before = None
while True:
    now = json.dumps(nodes(), sort_keys=True)
    if now != before:
        print(now, flush=True)
        before = now
    time.sleep(0.5)
"""
)
_POLL_S = 0.2
_TELL_EVERY_S = 5.0


class NodeWatch:
    """The nodes of a cluster, as a process under the keeper sees them."""

    def __init__(
        self,
        keeper: KeeperClient,
        python: Path,
        address: str,
        *,
        added: Mapping[str, str],
        removed: set[str],
        log: Path,
    ) -> None:
        """Start to watch the cluster at an address; the log is the watcher's own."""
        log.unlink(missing_ok=True)
        self.log = log
        self._follower = Follower(log)
        self._nodes: dict[str, Node] = {}
        self._expected: set[str] = set()
        keeper.start(
            "watch", [str(python), "-c", _WATCH, address], added=added, removed=removed, log=log
        )

    def nodes(self) -> tuple[Node, ...]:
        """Every node that was ever seen, as it is by now."""
        for line in self._follower.new_lines():
            if line.startswith("["):
                self._nodes |= {node.node_id: node for node in nodes_of(json.loads(line))}
        return tuple(self._nodes.values())

    def alive(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes() if node.alive)

    def expect_all(self) -> None:
        """From here on each node that is alive now must stay."""
        self._expected = {node.node_id for node in self.alive()}

    def lost(self) -> tuple[Node, ...]:
        """The nodes that were to stay and are gone."""
        return tuple(
            node for node in self.nodes() if node.node_id in self._expected and not node.alive
        )

    def lost_within(self, seconds: float) -> tuple[Node, ...]:
        """The same, waiting a while for the news: an engine may notice before Ray does."""
        deadline = time.monotonic() + seconds
        while not (lost := self.lost()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return lost


def missing(cluster: Cluster, alive: tuple[Node, ...]) -> str:
    """What is not there yet, in words; "" when all are.

    Args:
        alive: the nodes that are; this box's own is always the first.

    Raises:
        RigError: a node joined that is of another build, that brings too few devices, or whose
            box had joined before.
    """
    addresses = [node.address for node in alive]
    for node in alive:
        if addresses.count(node.address) > 1:
            raise RigError(
                f"{node} is in the cluster twice: two ranks would meet on one card",
                next_step="end one of the two ray-joins there",
            )
        wrong = differences(cluster.labels, node.labels)
        if wrong:
            raise RigError(
                f"node {node} is of another build than this one",
                where="; ".join(wrong),
                next_step="install the same wheel on every box, join with scripts/ray-join.sh",
            )
        if node.devices < cluster.cards:
            raise RigError(
                f"node {node} brings {node.devices} devices and {cluster.cards} are needed of each",
                next_step="join with as many cards as the head uses: --cards",
            )
    if len(alive) >= cluster.nodes:
        return ""
    here = ", ".join(f"{node} with {node.devices}" for node in alive)
    left = cluster.nodes - len(alive)
    return (
        f"{left} of {cluster.nodes} nodes ({left * cluster.cards} of "
        f"{cluster.nodes * cluster.cards} devices) are missing; here: {here}"
    )


def wait_for_nodes(
    cluster: Cluster,
    watch: NodeWatch,
    tell: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> tuple[Node, ...]:
    """Wait until every node has joined; the nodes.

    Args:
        check: called while waiting; raises if waiting is in vain.

    Raises:
        RigError: not all came in time (says which are here and what to run on the others), or
            one does not fit.
    """
    began = time.monotonic()
    tell_next = began
    while True:
        check()
        alive = watch.alive()
        lacking = missing(cluster, alive)
        if not lacking:
            watch.expect_all()
            return alive
        now = time.monotonic()
        if now - began > cluster.join_timeout_s:
            raise RigError(
                f"after {now - began:.0f} s {lacking if alive else 'Ray names no node at all'}",
                next_step=f"on each box that is missing: {cluster.join_command}",
            )
        if alive and now >= tell_next:
            tell_next = now + _TELL_EVERY_S
            tell(f"waiting, {now - began:.0f} s: {lacking}; there: {cluster.join_command}")
        time.sleep(_POLL_S)
