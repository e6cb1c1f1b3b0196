"""Serve a model on a private Ray cluster: start, prove, stop without a trace.

options = ServeOptions(model=..., python=..., log_folder=..., ranks=4, rehearse=True)
with serving(plan_serve(options)) as server:
    server.base_url                      # "http://127.0.0.1:23456"
    server.version()                     # "0.32.0+rig.1.cpu", from GET /version
    [rank.pid for rank in server.ranks()]
server.stopped                           # here every process, temporary file and shared
                                         # memory file of it is gone
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rig.errors import RigError
from rig.launch.engine_environment import (
    EngineEnvironment,
    describe,
    require_gpus,
    require_model,
    require_ray,
    require_rig_build,
)
from rig.launch.keeper_client import KeeperClient, KeeperLostError, StopReport
from rig.launch.limits import open_files_to_allow
from rig.launch.logs import Follower, make_log_folder, spoken, why_it_ended
from rig.launch.plan import Executor, ServeOptions, ServePlan, plan_serve
from rig.launch.ports import find_free_port, reserve_port
from rig.launch.ray_state import ask_cluster
from rig.launch.running import Rank, RunningServer
from rig.launch.runs import RUNTIME_VARIABLE, recover_stale_runs, runtime_folder
from rig.launch.signals import StopSignal, stop_signals

__all__ = [
    "Executor",
    "Rank",
    "RunningServer",
    "ServeOptions",
    "ServePlan",
    "StopReport",
    "StopSignal",
    "plan_serve",
    "serving",
]

RAY_TIMEOUT_S = 90.0
_POLL_S = 0.15
_SCRIPTS = Path(__file__).resolve().parents[2]

Progress = Callable[[str], None]


@contextmanager
def serving(
    plan: ServePlan,
    *,
    check_installation: Callable[[Path], object] = require_rig_build,
    progress: Progress | None = None,
) -> Iterator[RunningServer]:
    """Start Ray and the engine, and stop both when the block is left, however it is left.

    In the main thread SIGTERM and SIGHUP leave the block like Ctrl-C, as a `StopSignal` (a
    KeyboardInterrupt); a second signal cuts the waiting of the stop short.

    Args:
        plan: what to run.
        check_installation: called with the interpreter before anything starts; raises RigError if
            the installed vLLM is not a rig build. Its answer is `RunningServer.installation`.
        progress: told one line at each step, and the engine's last line while it loads.

    Raises:
        RigError: the environment is not fit, the port is taken, Ray or the engine did not come
            up (with the cause from its log), a socket is open to other machines, or, at the
            end, something could not be stopped.
    """
    tell = progress or (lambda line: None)
    with ExitStack() as stack:
        signals = stack.enter_context(stop_signals())
        environment = _fit(plan)
        installation = check_installation(environment.python)
        port = plan.port or find_free_port(plan.host)
        stack.enter_context(reserve_port(plan.host, port))
        runtime = runtime_folder(os.environ.get(RUNTIME_VARIABLE))
        for sentence in recover_stale_runs(runtime):
            tell(sentence)
        make_log_folder(plan.options.log_folder)
        tell(f"logs: {plan.options.log_folder}")
        keeper = KeeperClient(runtime, plan.options.stop_patience_s)
        server: RunningServer | None = None
        failed = True
        try:
            signals.on_second = keeper.hurry
            markers = {
                "$RIG_RUN": str(keeper.run_folder),
                "$RIG_PORT": str(port),
                "$RIG_RAY_CLIENT_PORT": str(find_free_port()),
                "$PATH": os.environ.get("PATH", os.defpath),
            }
            server = _start(plan.filled(markers), environment, installation, keeper, tell)
            yield server
            failed = False
        except RigError:
            with suppress(OSError):  # a full disk must not hide the failure itself
                _keep_ray_logs(keeper, plan.options.log_folder)
            raise
        finally:
            signals.stopping()
            tell("stopping")
            report = _stop(keeper, runtime, tell)
            if server is not None:
                server.stopped = report
            _judge(report, tell, failed)


def _stop(keeper: KeeperClient, runtime: Path, tell: Progress) -> StopReport:
    try:
        return keeper.stop()
    except KeeperLostError:
        # Its lock went with it, so its run is a stale one now: end what is left at once.
        for sentence in recover_stale_runs(runtime):
            tell(sentence)
        if not keeper.run_folder.exists():
            tell(f"removed the run's folder {keeper.run_folder}")
        raise


def _fit(plan: ServePlan) -> EngineEnvironment:
    require_model(plan.model)
    open_files_to_allow()  # said here; the keeper sets it
    environment = describe(plan.python)
    if plan.ray_command:
        require_ray(environment)
    for command in (plan.engine_command, plan.ray_command):
        if command and not Path(command[0]).is_file():
            raise RigError(
                "the plan names a program that is not there",
                where=command[0],
                next_step=f"plan with python={environment.python}",
            )
    if not plan.options.rehearse:
        require_gpus(plan.devices)
    return environment


def _start(
    plan: ServePlan,
    environment: EngineEnvironment,
    installation: object,
    keeper: KeeperClient,
    tell: Progress,
) -> RunningServer:
    began = time.monotonic()
    removed = set(plan.removed_variables)
    path = _python_path_without_ours()
    extra = {"PYTHONPATH": path} if path else {}
    if not path:
        removed.add("PYTHONPATH")
    inherited = {k: v for k, v in os.environ.items() if k not in removed}
    address = ""
    if plan.ray_command:
        log = _fresh(plan.options.log_folder / "ray.log")
        command = [
            argument
            for argument in plan.ray_command
            # Ray refuses this argument where grpc is not installed, and opens no such server then.
            if environment.ray_client or not argument.startswith("--ray-client-server-port")
        ]
        tell(f"Ray {environment.ray}: starting a private cluster of {plan.devices} devices")
        keeper.start(
            "ray", command, added={**plan.ray_environment, **extra}, removed=removed, log=log
        )
        asking = {**inherited, **plan.ray_environment, **extra}
        address = _wait_for_ray(plan, keeper, log, asking)
        plan = plan.filled({"$RIG_RAY_ADDRESS": address})
        tell(f"Ray is up at {address} after {time.monotonic() - began:.1f} s")
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
    )
    _wait_for_engine(server, began, tell)
    keeper.ready()
    server.ready_after_s = time.monotonic() - began
    tell(f"healthy at {server.base_url} after {server.ready_after_s:.1f} s")
    server.check_sockets()
    for warning in server.warnings:
        tell(f"warning: {warning}")
    return server


def _wait_for_ray(
    plan: ServePlan, keeper: KeeperClient, log: Path, environment: dict[str, str]
) -> str:
    deadline = time.monotonic() + RAY_TIMEOUT_S
    address_file = keeper.run_folder / "r" / "ray_current_cluster"
    while time.monotonic() < deadline:
        if "ray" in keeper.state().exit_codes:
            cause, last = why_it_ended(log)
            raise RigError(
                f"Ray did not start: {cause or 'it ended at once'}", where=log, detail=last
            )
        started = address_file.exists() and "Ray runtime started" in log.read_text(errors="replace")
        if started:
            address = address_file.read_text().strip()
            left = max(1.0, deadline - time.monotonic())
            cluster = ask_cluster(plan.python, address, environment, timeout_s=left)
            if cluster.devices >= plan.devices:
                return address
        time.sleep(_POLL_S)
    raise RigError(
        f"Ray did not offer {plan.devices} devices within {RAY_TIMEOUT_S:.0f} s",
        where=log,
        detail=why_it_ended(log)[1],
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
            cause, last = why_it_ended(server.engine_log)
            raise RigError(
                f"the engine was not ready within {plan.options.ready_timeout_s:.0f} s"
                + (f": {cause}" if cause else ""),
                where=server.engine_log,
                next_step="see its log; a large model from a slow disk may need a longer "
                "--ready-timeout",
                detail=last,
            )
        time.sleep(_POLL_S)


def _python_path_without_ours() -> str:
    """PYTHONPATH as the user had it: the tools' own folder is no business of the engine."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(e for e in entries if e and Path(e).resolve() != _SCRIPTS)


def _fresh(log: Path) -> Path:
    log.unlink(missing_ok=True)
    return log


def _keep_ray_logs(keeper: KeeperClient, log_folder: Path) -> None:
    """Ray's own logs go with the run's folder, but after a failure they are wanted."""
    source = keeper.run_folder / "r" / "session_latest" / "logs"
    kept = log_folder / "ray-session"
    shutil.rmtree(kept, ignore_errors=True)
    for log in source.glob("*"):
        if log.is_file() and log.stat().st_size:
            kept.mkdir(exist_ok=True)
            shutil.copy(log, kept / log.name)


def _judge(report: StopReport, tell: Progress, failed: bool) -> None:
    if report.removed:
        tell(f"removed {len(report.removed)} files that the engine had left in /dev/shm")
    if not report.left:
        tell(f"stopped: {report.processes} processes ended, nothing is left")
        return
    if failed:
        tell("could not be stopped or removed: " + ", ".join(report.left))
        return
    raise RigError(
        "not everything could be stopped or removed",
        where=", ".join(report.left),
        next_step="a process that survives SIGKILL hangs in a driver: see `dmesg`",
    )
