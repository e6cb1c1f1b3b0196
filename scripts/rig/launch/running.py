"""A server that runs: where it is, who its ranks are, what it listens on."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.launch import processes
from rig.launch.keeper_client import KeeperClient, StopReport
from rig.launch.logs import store_ports, why_it_ended
from rig.launch.plan import ServePlan
from rig.launch.ray_state import ask_cluster, worker_rank
from rig.launch.sockets import ListeningSocket, listening, others_on_port, unexpected

_MP_WORKER = re.compile(r"^VLLM::Worker(?:_DP\d+)?(?:_PP(?P<pp>\d+))?(?:_TP(?P<tp>\d+))?")
# vLLM notices within a second or two that a worker ended, and ends with the cause in its log.
RANK_GONE_S = 20.0
_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Rank:
    """One worker as the live cluster knows it.

    Args:
        rank: its place in the tensor (and pipeline) parallel group.
        pid: its process, checked to be one of this run's.
        name: the actor's name in Ray, or the process's title without Ray.
        node_id: Ray's id of the node that it runs on; "" without Ray.
        actor_id: Ray's id of the worker; "" without Ray.
        memory_bytes: its proportional share of the memory (PSS).
    """

    rank: int
    pid: int
    name: str
    node_id: str
    actor_id: str
    memory_bytes: int


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
    ) -> None:
        self.plan = plan
        self.installation = installation
        self.ray_address = ray_address
        self.ready_after_s = 0.0
        self.warnings: list[str] = []
        self.stopped: StopReport | None = None
        self._keeper = keeper
        self._environment = dict(environment)
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
        connection: http.client.HTTPConnection
        if self.plan.scheme == "https":
            # This box asks itself; the certificate is made out to its public name.
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
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
        """Raise RigError, with the cause from its log, if the engine, a rank or Ray has ended.

        The ranks that ended before the engine are known from `ranks` having been called before.
        """
        state = self._keeper.state()
        codes = state.exit_codes
        if not self._gone and not codes:
            self._gone = [rank for rank in self._ranks if rank.pid not in state.pids]
            self._gone_at = time.monotonic()
        first = ", ".join(f"rank {rank.rank} (pid {rank.pid})" for rank in self._gone)
        logs = {"engine": self.engine_log, "ray": self.ray_log}
        for name in ("engine", "ray"):
            log = logs[name]
            if name in codes and log is not None:
                cause, last = why_it_ended(log)
                how = f"exit code {codes[name]}"
                if codes[name] < 0:
                    how = f"killed by signal {-codes[name]}"
                    if codes[name] == -9 and not cause:
                        cause = "killed: out of memory? see `dmesg`"
                who = "the engine" if name == "engine" else "Ray"
                if first:
                    how += f", after {first} had ended"
                raise RigError(
                    f"{who} ended ({how}): {cause or 'it gives no reason'}", where=log, detail=last
                )

        if first and time.monotonic() - self._gone_at > RANK_GONE_S:
            cause, last = why_it_ended(self.engine_log)
            raise RigError(
                f"{first} ended, and the engine did not: {cause or 'it gives no reason'}",
                where=self.engine_log,
                next_step="a killed worker often means that memory ran out: see `dmesg`",
                detail=last,
            )

    def ranks(self) -> list[Rank]:
        """The workers, in order of rank, as the live cluster knows them.

        Raises:
            RigError: the cluster does not answer, or names a process that is not of this run.
        """
        pids = set(self.pids())
        found: list[Rank] = []
        if not self.plan.ray_command:
            for pid in pids:
                title = processes.title(pid)
                rank = self._rank_of_title(title)
                if rank is not None:
                    found.append(Rank(rank, pid, title, "", "", processes.memory_bytes([pid])))
        else:
            cluster = ask_cluster(self.plan.python, self.ray_address, self._environment)
            for actor in cluster.actors:
                rank = worker_rank(actor.name, self.plan.tensor_parallel_size)
                if rank is None:
                    continue
                if actor.pid not in pids:
                    raise RigError(
                        f"Ray names process {actor.pid} as rank {rank}, which is not of this run",
                        where=self.ray_address,
                    )
                memory = processes.memory_bytes([actor.pid])
                found.append(
                    Rank(rank, actor.pid, actor.name, actor.node_id, actor.actor_id, memory)
                )
        self._ranks = sorted(found, key=lambda rank: rank.rank)
        return list(self._ranks)

    def _rank_of_title(self, title: str) -> int | None:
        if self.plan.devices == 1 and title.startswith("VLLM::EngineCore"):
            return 0
        match = _MP_WORKER.match(title)
        if match is None:
            return None
        return int(match["pp"] or 0) * self.plan.tensor_parallel_size + int(match["tp"] or 0)

    def memory_bytes(self) -> int:
        """The memory of the whole run, shared pages counted once."""
        return processes.memory_bytes(self.pids())

    def sockets(self) -> list[ListeningSocket]:
        """What the processes of this run listen on."""
        return listening(self.pids())

    def check_sockets(self) -> None:
        """Note in `warnings` the known sockets that other machines can reach.

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
        ports = store_ports(self.engine_log)
        known, unknown = unexpected(listening(pids), self.port, ports)
        for socket in known:
            if socket.port in ports:
                self.warnings.append(
                    f"torch's store listens on every interface, without a password: {socket}; "
                    "keep this port behind a firewall"
                )
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
