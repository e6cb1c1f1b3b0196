"""The commands `ray-head` and `ray-join`."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rig.box.read import read_box
from rig.console import console, out
from rig.errors import RigError
from rig.launch.cluster import NOT_ENCRYPTED, head_plan
from rig.launch.cluster_join import build_labels, joined
from rig.launch.cluster_line import HEAD_HELP, JOIN_HELP, Head, plan_head, plan_join
from rig.launch.cluster_token import check_token_file, make_token_file
from rig.launch.command import Printer
from rig.launch.command_line import logs_folder
from rig.launch.dry_run import as_shell_script
from rig.launch.engine_environment import describe, require_rig_build
from rig.launch.gate_step import heed_doctor, wait_until_drained
from rig.launch.logs import Follower, forget_old_logs
from rig.launch.options_step import check_options, refuse_beginnings
from rig.launch.ports import find_free_port, reserve_port
from rig.launch.proof import proof
from rig.launch.ranks import Rank
from rig.launch.refused import Refused
from rig.launch.serve import serving
from rig.launch.supervise import FAILED, STOPPED, USAGE, Supervisor, exit_code, status


def node_rows(ranks: Sequence[Rank], tensor: int, own: str) -> list[str]:
    """Which rank is on which box, and a warning for a stage that no single box holds.

    Args:
        tensor: the tensor parallel size, so how many ranks make one stage of the pipeline.
        own: this box's address.
    """
    where: dict[int, set[str]] = {}
    rows = []
    for rank in ranks:
        stage = rank.rank // tensor
        node = rank.node or f"{own} (this box)"
        where.setdefault(stage, set()).add(node)
        rows.append(f"rank {rank.rank:<3} -> {node}, stage {stage}")
    rows += [
        f"warning: stage {stage} lies on {len(nodes)} boxes: each of its layers waits for the "
        "network twice; tensor parallel belongs inside a box"
        for stage, nodes in where.items()
        if len(nodes) > 1
    ]
    return rows


def head_main(argv: Sequence[str]) -> int:
    """Run `ray-head`; the exit status (see HEAD_HELP). RigErrors are printed, not raised."""
    if {"-h", "--help"} & set(argv):
        out.print(HEAD_HELP, end="", markup=False)
        return STOPPED
    try:
        head = plan_head(argv)
    except RigError as error:
        console.print(str(error), markup=False)
        return USAGE
    try:
        if head.dry_run:
            out.print(f"# on each other box: {head.cluster.join_command}", markup=False)
            out.print("# then, here (vLLM waits until every box is there):", markup=False)
            out.print(as_shell_script(head_plan(head.plan, head.cluster)), end="", markup=False)
            return STOPPED
        _serve(head)
    except Refused as refused:
        status(refused.error.what)
        console.print(str(refused.error), markup=False)
        return refused.code
    except RigError as error:
        status(error.what)
        console.print(str(error), markup=False)
        return exit_code(error)
    except KeyboardInterrupt:
        return STOPPED
    return FAILED


def _tell() -> Callable[[str], None]:
    printer = Printer()

    def tell(line: str) -> None:
        status(line)
        printer(line)

    return tell


def _check(head: Head, installation: object, tell: Callable[[str], None]) -> None:
    """The steps of `serve` that hold for one box of several: vLLM's options, the doctor's gate."""
    options = head.plan.options
    if head.check_options:
        arguments = (*head.rig.defaults.arguments, *options.extra_arguments)
        try:
            check_options(options.python, options.model, arguments, installation, tell, ask=True)
            refuse_beginnings(head.rig, options, installation)
        except RigError as error:
            raise Refused(error, USAGE) from error
    if options.rehearse:
        return
    box = read_box()
    if box.cards:
        wait_until_drained(read_box, tell)
        box = read_box()
    # What is asked of this box is its share.
    share = replace(head.plan, devices=head.cluster.cards)
    heed_doctor(box, head.rig, options, share, None, (), tell)


def _ray_port(address: str, port: int) -> socket.socket:
    """Hold the port of the head's Ray against other launches, until the result is closed."""
    try:
        return reserve_port(address, port)
    except RigError as error:
        raise RigError(
            error.what,
            where=error.where,
            next_step=f"stop what uses it, or take another one: --ray-port {find_free_port()}; "
            "the other boxes then join ADDRESS:PORT",
        ) from error


def _serve(head: Head) -> None:
    forget_old_logs(logs_folder())
    cluster = head.cluster
    made = make_token_file(cluster.token_file)
    check_token_file(cluster.token_file)
    environment = describe(head.plan.python)
    installation = require_rig_build(environment.python)
    cluster = replace(cluster, labels=build_labels(environment, installation))
    tell = _tell()
    _check(head, installation, tell)
    plan = head_plan(head.plan, cluster)
    for sentence in (NOT_ENCRYPTED, *plan.conflicts):
        console.print(f"note: {sentence}", markup=False)
    console.print(
        f"listening for other boxes at {cluster.address}:{cluster.port}, "
        f"interface {cluster.interface}",
        markup=False,
    )
    if made:
        console.print(f"a new token: copy {cluster.token_file} to each other box", markup=False)
    console.print(f"there: {cluster.join_command}", markup=False)
    with (
        _ray_port(cluster.address, cluster.port),
        serving(
            plan, check_installation=lambda _: installation, progress=tell, cluster=cluster
        ) as server,
    ):
        for row in proof(server):
            out.print(row, markup=False)
        for row in node_rows(server.ranks(), plan.tensor_parallel_size, cluster.address):
            out.print(row, markup=False)
        follower = Follower(server.engine_log)
        list(follower.new_lines())  # what was said so far was shown as progress
        with Supervisor(
            server.base_url,
            health_every_s=head.health_every_s,
            health_failures=head.health_failures,
            api_key=head.api_key,
        ) as supervisor:
            while True:
                for said in follower.new_lines():
                    out.print(said, markup=False)
                server.check_alive()
                supervisor.tick()
                time.sleep(0.25)


def join_main(argv: Sequence[str]) -> int:
    """Run `ray-join`; the exit status (see JOIN_HELP). RigErrors are printed, not raised."""
    if {"-h", "--help"} & set(argv):
        out.print(JOIN_HELP, end="", markup=False)
        return STOPPED
    try:
        options = plan_join(argv)
    except RigError as error:
        console.print(str(error), markup=False)
        return USAGE
    forget_old_logs(logs_folder())
    console.print(f"note: {NOT_ENCRYPTED}", markup=False)
    try:
        with (
            joined(options, progress=_tell()) as node,
            Supervisor(f"node of {options.head}") as supervisor,
        ):
            while True:
                node.check_alive()
                supervisor.tick()
                time.sleep(0.25)
    except RigError as error:
        status(error.what)
        console.print(str(error), markup=False)
        return exit_code(error)
    except KeyboardInterrupt:
        return STOPPED
