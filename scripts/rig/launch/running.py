"""A server that runs: where it is, who its ranks are, what it listens on."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path

from rig.errors import RigError
from rig.launch import processes
from rig.launch.asking import open_connection
from rig.launch.cluster_watch import NodeWatch
from rig.launch.keeper_client import KeeperClient, StopReport
from rig.launch.logs import store_ports, tail, why_it_ended
from rig.launch.plan import ServePlan
from rig.launch.ranks import Rank, ranks_by_title, ranks_in_cluster
from rig.launch.ray_state import ask_cluster
from rig.launch.sockets import ListeningSocket, listening, others_on_port, unexpected
from rig.launch.supervise import LostWhileServing
from rig.wheel.provenance import Provenance

__all__ = ["NODE_GONE_S", "RANK_GONE_S", "Rank", "RunningServer"]

# vLLM notices within a second or two that a worker ended, and ends with the cause in its log.
RANK_GONE_S = 20.0
# An engine may end before Ray has given up a node that is silent (cluster.py: about 8 s).
NODE_GONE_S = 12.0
# The patch that binds torch's store to the address that it is told, if that is loopback.
_STORE_ON_LOOPBACK = "0504"
_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class RunningServer:
    """A server under a keeper.

    Attributes:
        plan: what runs, every marker filled in.
        installation: what the check of the installation said.
        ray_address: host:port of the private cluster; "" without Ray.
        ready_after_s: seconds from the start of Ray to the first healthy answer.
        warnings: what a user should know, e.g. a socket that is open to other machines.
        stopped: the report of the stop, once there was one.
    """

    def __init__(
        self,
        *,
        plan: ServePlan,
        keeper: KeeperClient,
        installation: object,
        ray_address: str,
        environment: Mapping[str, str],
        watch: NodeWatch | None = None,
    ) -> None:
        self.plan = plan
        self.installation = installation
        self.ray_address = ray_address
        self.ready_after_s = 0.0
        self.warnings: list[str] = []
        self.stopped: StopReport | None = None
        self._keeper = keeper
        self._environment = dict(environment)
        self._watch = watch
        self._unwatched_since = 0.0
        self._ranks: list[Rank] = []
        self._gone: list[Rank] = []
        self._gone_at = 0.0

    @property
    def engine_log(self) -> Path:
        return self.plan.options.log_folder / "engine.log"

    @property
    def ray_log(self) -> Path | None:
        return self.plan.options.log_folder / "ray.log" if self.plan.ray_command else None

    @property
    def host(self) -> str:
        """The address to reach the server at from this box."""
        return _EVERY_INTERFACE.get(self.plan.host, self.plan.host)

    @property
    def port(self) -> int:
        assert self.plan.port is not None
        return self.plan.port

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.plan.scheme}://{host}:{self.port}"

    def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, bytes]:
        """GET a path of the server, past any proxy: (status, body).

        Raises:
            OSError, http.client.HTTPException: no answer.
        """
        connection = open_connection(self.base_url, timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def healthy(self) -> bool:
        """Whether GET /health says so within two seconds."""
        try:
            return self.get("/health", timeout_s=2.0)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def version(self) -> str:
        """The version that the server itself tells (GET /version).

        Raises:
            RigError: it tells none.
        """
        try:
            _, body = self.get("/version")
            return str(json.loads(body)["version"])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise RigError(f"the server tells no version: {error}", where=self.base_url) from error

    def pids(self) -> tuple[int, ...]:
        """Every process of this run."""
        return self._keeper.state().pids

    def check_alive(self) -> None:
        """Check that nothing has ended by itself.

        The ranks that ended before the engine are known from `ranks` having been called before.

        Raises:
            RigError: the engine, a rank, Ray or another box of the cluster is gone, with the
                cause from its log; `LostWhileServing` if the server had been healthy.
        """
        state = self._keeper.state()
        self._check_nodes(state.exit_codes)
        codes = state.exit_codes
        if not self._gone and not codes:
            here = [rank for rank in self._ranks if not rank.node]
            self._gone = [rank for rank in here if rank.pid not in state.pids]
            self._gone_at = time.monotonic()
        first = ", ".join(f"rank {rank.rank} (pid {rank.pid})" for rank in self._gone)
        logs = {"engine": self.engine_log, "ray": self.ray_log}
        # An engine does not end Ray, but Ray's end is the engine's.
        for name in ("ray", "engine"):
            log = logs[name]
            if name in codes and log is not None:
                cause, last, step = why_it_ended(log)
                how = f"exit code {codes[name]}"
                if codes[name] < 0:
                    how = f"killed by signal {-codes[name]}"
                    if codes[name] == -9 and not cause:
                        cause = "killed: out of memory? see `dmesg`"
                who = "the engine" if name == "engine" else "Ray"
                if first:
                    how += f", after {first} had ended"
                raise self._loss(
                    f"{who} ended ({how}): {cause or 'it gives no reason'}",
                    where=log,
                    next_step=step,
                    detail=last,
                )
        if first and time.monotonic() - self._gone_at > RANK_GONE_S:
            cause, last, step = why_it_ended(self.engine_log)
            raise self._loss(
                f"{first} ended, and the engine did not: {cause or 'it gives no reason'}",
                where=self.engine_log,
                next_step=step or "a killed worker often means that memory ran out: see `dmesg`",
                detail=last,
            )

    @property
    def _loss(self) -> type[RigError]:
        return LostWhileServing if self.ready_after_s else RigError

    def _check_nodes(self, codes: Mapping[str, int]) -> None:
        if self._watch is None:
            return
        # The watcher ends with Ray; alone, it leaves a box's loss unseen.
        wait = NODE_GONE_S if {"engine", "ray"} & codes.keys() else 0.0
        lost = self._watch.lost_within(wait)
        if not lost:
            self._unwatched_since = self._unwatched_since or time.monotonic()
            if "watch" not in codes:
                self._unwatched_since = 0.0
            elif not wait and time.monotonic() - self._unwatched_since > RANK_GONE_S:
                raise self._loss("nobody watches the other boxes any more", where=self._watch.log)
            return
        gone = ", ".join(map(str, lost))
        ranks = [str(r.rank) for r in self._ranks if r.node in {str(node) for node in lost}]
        with_it = f", and with it rank {', '.join(ranks)}" if ranks else ""
        why = "; ".join(dict.fromkeys(node.why for node in lost if node.why))
        raise self._loss(
            f"node {gone} went away{with_it}",
            where=self.engine_log,
            next_step="look at that box: its power, its network, its `dmesg`, its ray.log",
            detail=why or None,
        )

    def waits_for(self) -> str:
        """What an engine that is not ready says that it waits for, in words; "" if nothing."""
        if "Waiting for creating a placement group" not in tail(self.engine_log, 200):
            return ""
        try:
            cluster = ask_cluster(self.plan.python, self.ray_address, self._environment)
        except RigError as error:
            return f"it waits for {self.plan.devices} GPUs of Ray's, and {error.what}"
        here = ", ".join(f"{node} with {node.devices}" for node in cluster.alive)
        return f"it waits for {self.plan.devices} GPUs of Ray's and Ray has: {here or 'no node'}"

    def ranks(self) -> list[Rank]:
        """The workers, in order of rank, as the live cluster knows them.

        Raises:
            RigError: the cluster does not answer, or names a process that is not of this run.
        """
        pids = self.pids()
        tensor = self.plan.tensor_parallel_size
        if self.plan.ray_command:
            cluster = ask_cluster(self.plan.python, self.ray_address, self._environment)
            own = None if self._watch is None else self.ray_address.rpartition(":")[0]
            self._ranks = ranks_in_cluster(cluster, pids, tensor, own)
        else:
            self._ranks = ranks_by_title(pids, tensor, alone=self.plan.devices == 1)
        return list(self._ranks)

    def memory_bytes(self) -> int:
        """The memory of the whole run, shared pages counted once."""
        return processes.memory_bytes(self.pids())

    def sockets(self) -> list[ListeningSocket]:
        """What the processes of this run listen on."""
        return listening(self.pids())

    @property
    def _store_may_be_open(self) -> bool:
        provenance = getattr(self.installation, "provenance", None)
        patches = provenance.patches if isinstance(provenance, Provenance) else ()
        on_loopback = _STORE_ON_LOOPBACK in {patch.number for patch in patches}
        several_boxes = self._watch is not None
        return several_boxes or self.plan.options.allow_open_sockets or not on_loopback

    def check_sockets(self) -> None:
        """Note in `warnings` the known sockets that other machines can reach.

        Torch's store is known to be open in builds without patch 0504, where other boxes must
        reach it, and where the user allows open sockets; else it is an unknown one, too.

        Raises:
            RigError: there is an unknown one, or another process shares the server's port.
        """
        pids = self.pids()
        strangers = others_on_port(self.port, pids)
        if strangers:
            raise RigError(
                f"another server listens on port {self.port} as well: requests would go to either",
                next_step="give each its own --port",
            )
        ports = store_ports(self.engine_log) if self._store_may_be_open else set()
        known, unknown = unexpected(listening(pids), self.port, ports)
        for socket in known:
            if socket.port in ports:
                self.warnings.append(
                    f"torch's store listens on every interface, without a password: {socket}; "
                    "keep this port behind a firewall"
                )
        if self._watch is not None:
            # Ray and gloo serve the other boxes; what Ray opens, it opens on every interface.
            everywhere = [s for s in unknown if s.address in _EVERY_INTERFACE]
            listed = ", ".join(str(socket.port) for socket in everywhere)
            self.warnings.append(
                f"{len(unknown)} ports serve the other boxes; these listen on every interface "
                f"of this one, so keep them behind a firewall: {listed}"
            )
            return
        if not unknown:
            return
        said = "; ".join(str(socket) for socket in unknown)
        if self.plan.options.allow_open_sockets:
            self.warnings.append(f"open to other machines: {said}")
            return
        raise RigError(
            "the engine listens where other machines can reach it",
            where=said,
            next_step="if you trust your network: --allow-open-sockets",
        )
