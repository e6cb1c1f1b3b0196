"""Start Ray and the engine under a keeper, and wait for each, with a bound and a cause."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from rig.errors import RigError
from rig.launch.cluster import Cluster
from rig.launch.cluster_watch import NodeWatch, wait_for_nodes
from rig.launch.engine_environment import EngineEnvironment
from rig.launch.keeper_client import KeeperClient
from rig.launch.logs import Follower, spoken, tail, why_it_ended
from rig.launch.plan import ServePlan
from rig.launch.ray_state import ask_cluster
from rig.launch.running import RunningServer

RAY_TIMEOUT_S = 90.0
_POLL_S = 0.15
_SCRIPTS = Path(__file__).resolve().parents[2]

Progress = Callable[[str], None]


def start(
    plan: ServePlan,
    environment: EngineEnvironment,
    installation: object,
    keeper: KeeperClient,
    tell: Progress,
    cluster: Cluster | None = None,
) -> RunningServer:
    """Start what a plan says, every marker of it filled in but Ray's address.

    Raises:
        RigError: Ray, a node of the cluster or the engine did not come up in time, with the
            cause; or a socket is open to other machines.
    """
    began = time.monotonic()
    removed, extra = inherited_by_programs(plan.removed_variables)
    inherited = {k: v for k, v in os.environ.items() if k not in removed}
    address = ""
    watch: NodeWatch | None = None
    if plan.ray_command:
        log = _fresh(plan.options.log_folder / "ray.log")
        command = [
            argument
            for argument in plan.ray_command
            # Ray refuses this argument where grpc is not installed, and opens no such server then.
            if environment.ray_client or not argument.startswith("--ray-client-server-port")
        ]
        devices = plan.devices if cluster is None else cluster.cards
        tell(f"Ray {environment.ray}: starting a private cluster of {devices} devices")
        keeper.start(
            "ray", command, added={**plan.ray_environment, **extra}, removed=removed, log=log
        )
        asking = {**inherited, **plan.ray_environment, **extra}
        address = wait_for_ray(plan.python, devices, keeper, log, asking)
        plan = plan.filled({"$RIG_RAY_ADDRESS": address})
        tell(f"Ray is up at {address} after {time.monotonic() - began:.1f} s")
        if cluster is not None:
            watch = NodeWatch(
                keeper,
                plan.python,
                address,
                added={**plan.ray_environment, **extra},
                removed=removed,
                log=plan.options.log_folder / "nodes.log",
            )
            nodes = wait_for_nodes(cluster, watch, tell, lambda: _ray_lives(keeper, log))
            tell("nodes: " + ", ".join(map(str, nodes)))
    engine_log = _fresh(plan.options.log_folder / "engine.log")
    tell(f"vLLM {environment.vllm}: loading {plan.model}")
    keeper.start(
        "engine",
        plan.engine_command,
        added={**plan.engine_environment, **extra},
        removed=removed,
        log=engine_log,
    )
    server = RunningServer(
        plan=plan,
        keeper=keeper,
        installation=installation,
        ray_address=address,
        environment={**inherited, **plan.engine_environment, **extra},
        watch=watch,
    )
    _wait_for_engine(server, began, tell)
    keeper.ready()
    server.ready_after_s = time.monotonic() - began
    tell(f"healthy at {server.base_url} after {server.ready_after_s:.1f} s")
    server.check_sockets()
    for warning in server.warnings:
        tell(f"warning: {warning}")
    return server


def _ray_lives(keeper: KeeperClient, log: Path) -> None:
    codes = keeper.state().exit_codes
    if "ray" in codes:
        cause, last, step = why_it_ended(log)
        what = f"Ray ended: {cause or 'it gives no reason'}"
        raise RigError(what, where=log, next_step=step, detail=last)
    if "watch" in codes:
        last = tail(log.with_name("nodes.log"))
        raise RigError("the cluster cannot be watched", where=log, detail=last)


def wait_for_ray(
    python: Path, devices: int, keeper: KeeperClient, log: Path, environment: dict[str, str]
) -> str:
    """Wait for the Ray that a keeper has started; the address that it chose.

    Args:
        devices: how many it must offer.
        environment: the whole environment of a program that asks it.

    Raises:
        RigError: it ended, or did not offer that many within RAY_TIMEOUT_S.
    """
    deadline = time.monotonic() + RAY_TIMEOUT_S
    address_file = keeper.run_folder / "r" / "ray_current_cluster"
    offered: int | None = None
    while time.monotonic() < deadline:
        if "ray" in keeper.state().exit_codes:
            cause, last, step = why_it_ended(log)
            what = f"Ray did not start: {cause or 'it ended at once'}"
            raise RigError(what, where=log, next_step=step, detail=last)
        started = address_file.exists() and "Ray runtime started" in log.read_text(errors="replace")
        if started:
            address = address_file.read_text().strip()
            left = max(1.0, deadline - time.monotonic())
            offered = ask_cluster(python, address, environment, timeout_s=left).devices
            if offered >= devices:
                return address
        time.sleep(_POLL_S)
    said = "it did not come up" if offered is None else f"it offers {offered}"
    raise RigError(
        f"Ray did not offer {devices} devices within {RAY_TIMEOUT_S:.0f} s: {said}",
        where=log,
        detail=why_it_ended(log).last,
    )


def _wait_for_engine(server: RunningServer, began: float, tell: Progress) -> None:
    plan = server.plan
    follower = Follower(server.engine_log)
    deadline = time.monotonic() + plan.options.ready_timeout_s
    while True:
        server.check_alive()
        said = [spoken(line) for line in follower.new_lines() if line.strip()]
        if said and said[-1]:
            tell(f"loading, {time.monotonic() - began:.0f} s: {said[-1][:120]}")
        if server.healthy():
            return
        if time.monotonic() > deadline:
            cause, last, step = why_it_ended(server.engine_log)
            cause = server.waits_for() or cause
            raise RigError(
                f"the engine was not ready within {plan.options.ready_timeout_s:.0f} s"
                + (f": {cause}" if cause else ""),
                where=server.engine_log,
                next_step=step
                or "see its log; a large model from a slow disk may need a longer --ready-timeout",
                detail=last,
            )
        time.sleep(_POLL_S)


def inherited_by_programs(unwanted: tuple[str, ...]) -> tuple[set[str], dict[str, str]]:
    """The variables that what we start must not inherit, and those that it gets in their place."""
    path = _python_path_without_ours()
    if path:
        return set(unwanted), {"PYTHONPATH": path}
    return {*unwanted, "PYTHONPATH"}, {}


def _python_path_without_ours() -> str:
    """PYTHONPATH as the user had it: the tools' own folder is no business of the engine."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(e for e in entries if e and Path(e).resolve() != _SCRIPTS)


def _fresh(log: Path) -> Path:
    log.unlink(missing_ok=True)
    return log
