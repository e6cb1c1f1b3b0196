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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rig.errors import RigError
from rig.launch.cluster import Cluster
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
from rig.launch.logs import make_log_folder
from rig.launch.other_rays import other_rays
from rig.launch.plan import Executor, ServeOptions, ServePlan, plan_serve
from rig.launch.ports import find_free_port, reserve_port
from rig.launch.running import Rank, RunningServer
from rig.launch.runs import RUNTIME_VARIABLE, recover_stale_runs, require_room, runtime_folder
from rig.launch.signals import StopSignal, stop_signals
from rig.launch.starting import Progress, start

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


@contextmanager
def serving(
    plan: ServePlan,
    *,
    check_installation: Callable[[Path], object] = require_rig_build,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> Iterator[RunningServer]:
    """Start Ray and the engine, and stop both when the block is left, however it is left.

    In the main thread SIGTERM and SIGHUP leave the block like Ctrl-C, as a `StopSignal` (a
    KeyboardInterrupt); a second signal cuts the waiting of the stop short.

    Args:
        plan: what to run.
        check_installation: called with the interpreter before anything starts; raises RigError if
            the installed vLLM is not a rig build. Its answer is `RunningServer.installation`.
        progress: told one line at each step, and the engine's last line while it loads.
        cluster: other boxes to wait for; the plan is then one of `cluster.head_plan`.

    Raises:
        RigError: the environment is not fit, the port is taken, Ray or the engine did not come
            up (with the cause from its log), a socket is open to other machines, or, at the
            end, something could not be stopped.
    """
    tell = progress or (lambda line: None)
    with ExitStack() as stack:
        signals = stack.enter_context(stop_signals())
        environment = _fit(plan, plan.devices if cluster is None else cluster.cards)
        installation = check_installation(environment.python)
        port = plan.port or find_free_port(plan.host)
        stack.enter_context(reserve_port(plan.host, port))
        runtime = runtime_folder(os.environ.get(RUNTIME_VARIABLE))
        for sentence in recover_stale_runs(runtime):
            tell(sentence)
        require_room(runtime)
        for sentence in other_rays():
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
            server = start(plan.filled(markers), environment, installation, keeper, tell, cluster)
            yield server
            failed = False
        except RigError:
            with suppress(OSError):  # a full disk must not hide the failure itself
                keep_ray_logs(keeper, plan.options.log_folder)
            raise
        finally:
            signals.stopping()
            last_words = though_nobody_hears(tell)
            last_words("stopping")
            report = stop_keeper(keeper, runtime, last_words)
            if server is not None:
                server.stopped = report
            judge(report, last_words, failed)


def though_nobody_hears(tell: Progress) -> Progress:
    """The same, where a terminal or a pipe that is gone must not cut a stop short."""

    def told(line: str) -> None:
        with suppress(OSError, SystemExit):  # the latter is what rich makes of a broken pipe
            tell(line)

    return told


def stop_keeper(keeper: KeeperClient, runtime: Path, tell: Progress) -> StopReport:
    try:
        return keeper.stop()
    except KeeperLostError:
        # Its lock went with it, so its run is a stale one now: end what is left at once.
        for sentence in recover_stale_runs(runtime):
            tell(sentence)
        if not keeper.run_folder.exists():
            tell(f"removed the run's folder {keeper.run_folder}")
        raise


def _fit(plan: ServePlan, devices: int) -> EngineEnvironment:
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
        require_gpus(devices)
    return environment


def keep_ray_logs(keeper: KeeperClient, log_folder: Path) -> None:
    """Ray's own logs go with the run's folder, but after a failure they are wanted."""
    source = keeper.run_folder / "r" / "session_latest" / "logs"
    kept = log_folder / "ray-session"
    shutil.rmtree(kept, ignore_errors=True)
    for log in source.glob("*"):
        if log.is_file() and log.stat().st_size:
            kept.mkdir(exist_ok=True)
            shutil.copy(log, kept / log.name)


def judge(report: StopReport, tell: Progress, failed: bool) -> None:
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
