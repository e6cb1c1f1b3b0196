"""What a user can check of a server: who serves, on what, by which ways, with which patches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rig.errors import RigError

if TYPE_CHECKING:
    from rig.box.facts import Box
    from rig.launch.running import Rank, RunningServer

NOT_SAID = "not said"
# Patch 0501's line: which devices of Ray's the ranks of a node have, in their order.
_RAY_DEVICES = re.compile(r"Ray ranks on node (\w+) use GPUs \[([\d, ]*)\]")
# What this table already says, from the live processes.
_OURS = ("engine", "ranks", "cards")


def proof(server: RunningServer) -> list[str]:
    """The proof, a line each.

    Raises:
        RigError: the live ranks are not those of the plan.
    """
    ranks = server.ranks()
    wanted = list(range(server.plan.devices))
    if [rank.rank for rank in ranks] != wanted:
        raise RigError(
            f"the ranks {wanted} were asked for, {[rank.rank for rank in ranks]} are alive",
            where=server.engine_log,
        )
    rows = [("url", f"{server.base_url}/v1"), ("model", server.plan.model)]
    rows.append(("version", f"{server.version()} (GET /version)"))
    provenance: Any = getattr(server.installation, "provenance", None)
    for patch in getattr(provenance, "patches", ()):
        rows.append(("patch", f"{patch.number} {patch.subject}"))
    log = _log_text(server)
    cards = _cards_of_ranks(server, ranks, log)
    for rank in ranks:
        rows.append((f"rank {rank.rank}", _rank_row(rank, cards.get(rank.rank, ""))))
    rows += _engine_rows(server, log)
    if server.ray_address:
        rows.append(("ray", f"{server.ray_address}, private, token required"))
    sockets = server.sockets()
    outside = [str(socket) for socket in sockets if not socket.on_loopback]
    rows.append(("sockets", f"{len(sockets) - len(outside)} on loopback only"))
    rows += [("", f"reachable from outside: {socket}") for socket in outside]
    rows.append(("memory", f"{server.memory_bytes() / 2**30:.1f} GiB in all"))
    rows.append(("logs", str(server.plan.options.log_folder)))
    rows.append(("ready", f"after {server.ready_after_s:.0f} s; Ctrl-C stops it"))
    return [f"{name:<8} {text}" for name, text in rows]


def _rank_row(rank: Rank, card: str) -> str:
    where = f", Ray node {rank.node_id[:8]}" if rank.node_id else ""
    if rank.node:
        where += f" on {rank.node}"
    memory = f", {rank.memory_bytes / 2**30:.1f} GiB of memory" if rank.memory_bytes else ""
    return f"pid {rank.pid}, {card or f'card: {NOT_SAID}'}{where}{memory}"


def _log_text(server: RunningServer) -> str:
    try:
        return server.engine_log.read_text(errors="replace")
    except OSError:
        return ""


def _engine_rows(server: RunningServer, log: str) -> list[tuple[str, str]]:
    """What the engine itself said: all-reduce, transport, offload, KV cache, streamed towers."""
    from rig.engine_log.read import read_engine_log
    from rig.engine_log.rows import rows

    said = read_engine_log(log.splitlines(), environment=server.plan.engine_environment)
    # A server that answers is ready, whether or not it wrote so: silence is then an answer.
    return [row for row in rows(said) if row[0] not in _OURS]


def _cards_of_ranks(server: RunningServer, ranks: list[Rank], log: str) -> dict[int, str]:
    """Which device each rank is on, in words; a rank of which nobody says it is left out."""
    if not server.plan.options.rehearse:
        from rig.box.read import read_box

        return cards_by_process(read_box(), {rank.rank: rank.pid for rank in ranks})
    if not server.ray_address:
        return {rank.rank: f"logical device {rank.rank}" for rank in ranks}
    return logical_devices(log, {rank.rank: rank.node_id for rank in ranks})


def cards_by_process(box: Box, pids: Mapping[int, int]) -> dict[int, str]:
    """Rank -> card, by the driver's own list of processes; `pids` is rank -> pid.

    In a container the driver may name pids of the host: then nothing is found, and not said.
    """
    found: dict[int, str] = {}
    for rank, pid in pids.items():
        on = [
            card
            for card in box.cards or ()
            if any(process.pid == pid for process in card.processes or ())
        ]
        if on:
            found[rank] = ", ".join(f"card {card.index} ({card.bus_id})" for card in on)
    return found


def logical_devices(log: str, nodes: Mapping[int, str]) -> dict[int, str]:
    """Rank -> Ray's logical device, by the engine's own line; `nodes` is rank -> Ray's node id."""
    by_node: dict[str, list[str]] = {}
    for node, devices in _RAY_DEVICES.findall(log):
        by_node[node] = [device.strip() for device in devices.split(",") if device.strip()]
    found: dict[int, str] = {}
    for rank, node in sorted(nodes.items()):
        left = by_node.get(node)
        if left:
            found[rank] = f"logical device {left.pop(0)} of Ray's"
    return found
