"""A box that joins another one's cluster: a Ray node under our keeper, until either side ends."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rig.errors import RigError
from rig.launch.cluster import (
    Cluster,
    differences,
    foreign_variables,
    join_command,
    join_environment,
    labels_of,
    ray_variables,
)
from rig.launch.cluster_network import require_listener
from rig.launch.engine_environment import (
    EngineEnvironment,
    describe,
    require_gpus,
    require_ray,
    require_rig_build,
)
from rig.launch.keeper_client import KeeperClient
from rig.launch.limits import open_files_to_allow
from rig.launch.logs import make_log_folder, why_it_ended
from rig.launch.plan import MARKER
from rig.launch.ray_state import ClusterState, ask_cluster
from rig.launch.runs import RUNTIME_VARIABLE, recover_stale_runs, require_room, runtime_folder
from rig.launch.serve import judge, keep_ray_logs, stop_keeper, though_nobody_hears
from rig.launch.signals import stop_signals
from rig.launch.starting import RAY_TIMEOUT_S, Progress, inherited_by_programs
from rig.launch.supervise import LostWhileServing
from rig.wheel.provenance import Provenance

_POLL_S = 0.25
_LOOK_EVERY_S = 3.0
# A head that restarts is lost to its cluster anyway; a short fault of the network is not.
HEAD_GONE_S = 15.0
_TOKEN_REFUSED = re.compile(r"[Tt]oken|UNAUTHENTICATED|Unauthenticated")


@dataclass(frozen=True)
class JoinOptions:
    """What a box that joins is told.

    Args:
        head: HOST:PORT of the head's Ray.
        python: the interpreter of the engine environment.
        cluster: this box's own address and interface, its cards and the token; `labels` are
            filled in from the installed build.
        rehearse: no GPUs: the cards are logical ones.
    """

    head: str
    python: Path
    log_folder: Path
    cluster: Cluster
    rehearse: bool = False
    object_store_bytes: int = 256 * 1024 * 1024


def build_labels(environment: EngineEnvironment, installation: object) -> dict[str, str]:
    """What this box says of its build.

    Raises:
        RigError: the check of the installation told nothing of it.
    """
    provenance = getattr(installation, "provenance", None)
    if not isinstance(provenance, Provenance):
        raise RigError("what is installed is not known to be a rig build", where=environment.python)
    return labels_of(provenance, environment.ray, environment.python_version)


class JoinedNode:
    """A Ray node that runs under a keeper."""

    def __init__(self, keeper: KeeperClient, options: JoinOptions) -> None:
        self._keeper = keeper
        self._options = options
        self._next_look = 0.0
        self._silent_since: float | None = None

    def pids(self) -> tuple[int, ...]:
        """Every process of this node."""
        return self._keeper.state().pids

    def check_alive(self) -> None:
        """Raise LostWhileServing if this node's Ray has ended, or the head is silent a while.

        Ray's own word would come late: to a cable that was cut it says nothing for minutes.
        """
        log = self._options.log_folder / "ray.log"
        codes = self._keeper.state().exit_codes
        ended = "ray" in codes
        if not ended and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_EVERY_S
        again = "start the head again, then join again (a systemd unit does both)"
        host, _, port = self._options.head.rpartition(":")
        try:
            require_listener(host, int(port), timeout_s=2.0)
        except RigError as error:
            self._silent_since = self._silent_since or time.monotonic()
            if ended or time.monotonic() - self._silent_since > HEAD_GONE_S:
                what = f"the head at {self._options.head} went away"
                raise LostWhileServing(what, where=log, next_step=again) from error
            return
        self._silent_since = None
        if ended:
            cause, last, step = why_it_ended(log)
            raise LostWhileServing(
                f"this box's Ray ended by itself (exit code {codes['ray']}), the head still answers"
                + (f": {cause}" if cause else ""),
                where=log,
                next_step=step or "was the head started anew? if not, see `dmesg`; then join again",
                detail=last,
            )


@contextmanager
def joined(
    options: JoinOptions,
    *,
    check_installation: Callable[[Path], object] = require_rig_build,
    progress: Progress | None = None,
) -> Iterator[JoinedNode]:
    """Join a head's cluster, and leave it without a trace when the block is left.

    Raises:
        RigError: this box is not fit, no head answers, it refuses the token, it is of another
            build, or Ray did not come up.
    """
    tell = progress or (lambda line: None)
    cluster = options.cluster
    with ExitStack() as stack:
        signals = stack.enter_context(stop_signals())
        open_files_to_allow()
        environment = describe(options.python)
        require_ray(environment)
        labels = build_labels(environment, check_installation(environment.python))
        if not options.rehearse:
            require_gpus(cluster.cards)
        cluster = replace(cluster, labels=labels)
        host, _, port = options.head.rpartition(":")
        require_listener(host, int(port))
        programs = environment.python.parent
        removed, extra = inherited_by_programs(foreign_variables(os.environ))
        added = {**join_environment(cluster, str(programs), options.rehearse), **extra}
        asking = {k: v for k, v in os.environ.items() if k not in removed}
        asking |= {**ray_variables(cluster.token_file), **extra}
        state = _ask_head(environment.python, options.head, asking, cluster)
        refuse_other_build(labels, state, options.head)
        _refuse_second_time(cluster.address, state)
        runtime = runtime_folder(os.environ.get(RUNTIME_VARIABLE))
        for sentence in recover_stale_runs(runtime):
            tell(sentence)
        require_room(runtime)
        make_log_folder(options.log_folder)
        tell(f"logs: {options.log_folder}")
        keeper = KeeperClient(runtime)
        failed = True
        try:
            signals.on_second = keeper.hurry
            markers = {
                "$RIG_RUN": str(keeper.run_folder),
                "$PATH": os.environ.get("PATH", os.defpath),
            }

            def fill(text: str) -> str:
                return MARKER.sub(lambda marker: markers.get(marker[0], marker[0]), text)

            log = options.log_folder / "ray.log"
            log.unlink(missing_ok=True)
            command = join_command(
                programs / "ray", options.head, cluster, options.object_store_bytes
            )
            tell(f"Ray {environment.ray}: joining {options.head} with {cluster.cards} devices")
            keeper.start(
                "ray",
                [fill(word) for word in command],
                added={name: fill(value) for name, value in added.items()},
                removed=removed,
                log=log,
            )
            _wait_until_joined(keeper, log)
            keeper.ready()
            tell(f"joined {options.head} as {cluster.address} ({cluster.interface})")
            yield JoinedNode(keeper, options)
            failed = False
        except RigError:
            with suppress(OSError):
                keep_ray_logs(keeper, options.log_folder)
            raise
        finally:
            signals.stopping()
            last_words = though_nobody_hears(tell)
            last_words("stopping")
            judge(stop_keeper(keeper, runtime, last_words), last_words, failed)


def _ask_head(
    python: Path, head: str, environment: dict[str, str], cluster: Cluster
) -> ClusterState:
    try:
        return ask_cluster(python, head, environment, timeout_s=30.0)
    except RigError as error:
        if error.detail and _TOKEN_REFUSED.search(error.detail):
            raise RigError(
                f"the head at {head} refuses this box's token",
                where=cluster.token_file,
                next_step="copy the head's token file to this box once more",
            ) from error
        raise RigError(
            f"what answers at {head} is no Ray head of this version",
            where=head,
            next_step="give the address that scripts/ray-head.sh prints",
            detail=error.detail,
        ) from error


def refuse_other_build(labels: dict[str, str], state: ClusterState, head: str) -> None:
    """Raise RigError, naming each difference, unless the head is of the same build."""
    host = head.rpartition(":")[0]
    heads = [node for node in state.alive if node.address == host] or list(state.alive)
    if not heads:
        raise RigError(f"the cluster at {head} has no node", next_step="start the head again")
    wrong = differences(labels, heads[0].labels)
    if wrong:
        raise RigError(
            f"the head {heads[0]} is of another build than this box",
            where="; ".join(wrong),
            next_step="install the same wheel on every box, start the head with "
            "scripts/ray-head.sh",
        )


def _refuse_second_time(address: str, state: ClusterState) -> None:
    for node in state.alive:
        if node.address == address:
            raise RigError(
                f"{node} is in the cluster already: its cards would be counted twice",
                next_step="it is the head itself, or another ray-join runs here; one that was "
                "killed is forgotten by the head after about 10 s",
            )


def _wait_until_joined(keeper: KeeperClient, log: Path) -> None:
    deadline = time.monotonic() + RAY_TIMEOUT_S
    while time.monotonic() < deadline:
        if "ray" in keeper.state().exit_codes:
            cause, last, step = why_it_ended(log)
            raise RigError(
                f"Ray did not join: {cause or 'it ended at once'}",
                where=log,
                next_step=step,
                detail=last,
            )
        if log.exists() and "Ray runtime started" in log.read_text(errors="replace"):
            return
        time.sleep(_POLL_S)
    raise RigError(
        f"Ray did not join within {RAY_TIMEOUT_S:.0f} s", where=log, detail=why_it_ended(log).last
    )
