"""The command lines of `ray-head` and `ray-join`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rig.box.rig_file import Rig
from rig.errors import RigError
from rig.launch.arguments import has_option, value_of
from rig.launch.cluster import DEFAULT_RAY_PORT, NOT_ENCRYPTED, Cluster, parse_head
from rig.launch.cluster_join import JoinOptions
from rig.launch.cluster_network import address_towards, choose, interfaces
from rig.launch.cluster_token import check_token_file, default_token_file
from rig.launch.command import UsageError, options_of, split_command_line
from rig.launch.command_line import CommandLine, logs_folder, rig_name_of
from rig.launch.decide import Known
from rig.launch.engine_environment import choose_python, describe
from rig.launch.plan import ServePlan, plan_serve

HEAD_HELP = f"""\
usage: ray-head.sh (--interface IF | --advertise ADDRESS) --rig NAME MODEL [options]
                   [vLLM's arguments ...]

Serve MODEL over two or more boxes: tensor parallel inside each, pipeline parallel across them.
Start this on one box, and scripts/ray-join.sh on each other one, where the same wheel, the same
model (same name or same folder) and a copy of the token file must be.

options, beside those of serve.sh (see its --help):
  --interface IF          the network interface that the other boxes reach this one by, or
  --advertise ADDRESS     its address; one of the two must be given
  --nodes N               how many boxes, this one included (default 2)
  --cards N               how many cards of each box (default: ranks / nodes)
  --token-file FILE       Ray's token, made with mode 0600 if missing
                          (default {default_token_file()})
  --ray-port PORT         where the other boxes join (default {DEFAULT_RAY_PORT})
  --join-timeout SECONDS  how long they may take (default 600)
  --dry-run               print the commands for this box and for the others; start nothing

Memory is not planned over several boxes: vLLM itself says if the model does not fit.
{NOT_ENCRYPTED}.

exit status: 0 stopped by you, 1 it did not start, 2 wrong usage, 3 this box is not fit for it,
5 a box, a rank or the engine was lost while serving
"""
JOIN_HELP = f"""\
usage: ray-join.sh HEAD_ADDRESS[:PORT] --token-file FILE [options]

Lend this box's cards to the head's cluster until Ctrl-C, or until the head goes away.

options:
  --token-file FILE       a copy of the head's token: yours, mode 0600
  --advertise ADDRESS     this box's address (default: the one on the way to the head)
  --cards N               how many cards (default: as many as the driver shows)
  --python PATH           the Python that vLLM is installed for, as for serve.sh
  --rehearse              no GPUs: N logical devices (give --cards)
  --log-folder FOLDER     where ray.log goes

{NOT_ENCRYPTED}.

exit status: 0 stopped by you, 1 it did not join, 2 wrong usage, 5 the head went away
"""
_HEAD_OPTIONS = (
    "--interface",
    "--advertise",
    "--nodes",
    "--cards",
    "--token-file",
    "--ray-port",
    "--join-timeout",
)
_JOIN_OPTIONS = ("--token-file", "--advertise", "--cards", "--python", "--log-folder")


def take(arguments: Sequence[str], names: Sequence[str]) -> CommandLine:
    """Take options with a value out, wherever they stand.

    Raises:
        UsageError: one lacks its value.
    """
    line = CommandLine()
    waiting = list(arguments)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if name not in names:
            line.rest.append(name + equals + value)
            continue
        if not equals:
            if not waiting:
                raise UsageError(f"{name} needs a value", next_step="see --help")
            value = waiting.pop(0)
        line.values[name] = value
    return line


@dataclass(frozen=True)
class Head:
    """What `ray-head` was asked for; the labels of the build are still to be filled in."""

    plan: ServePlan
    cluster: Cluster
    rig: Rig
    dry_run: bool
    check_options: bool
    health_every_s: float | None
    health_failures: int
    api_key: str | None


def _rig_of(line: CommandLine) -> Rig:
    from rig.box.read import read_box
    from rig.box.rigs import AUTO, find_rig

    name = rig_name_of(line)
    return find_rig(name, box=read_box() if name == AUTO else None)


def plan_head(argv: Sequence[str]) -> Head:
    """Read a command line of `ray-head`.

    Raises:
        RigError: it makes no sense, or names an address that this box does not have.
    """
    line = take(argv, _HEAD_OPTIONS)
    own = choose(line.values.get("--advertise"), line.values.get("--interface"), interfaces())
    nodes = line.count("--nodes") or 2
    if nodes < 2:
        raise UsageError("one box is no cluster", next_step="use scripts/serve.sh, or --nodes 2")
    ray_port = line.count("--ray-port") or DEFAULT_RAY_PORT
    if ray_port > 65535:
        raise UsageError(f"--ray-port is {ray_port}", next_step="a port is 1 to 65535")
    served = split_command_line(line.rest)
    rig = _rig_of(served)
    options = options_of(served, None, ranks=rig.cards.count)
    extra = options.extra_arguments
    if not has_option(extra, "--pipeline-parallel-size", "-pp"):
        if has_option(extra, "--tensor-parallel-size", "-tp"):
            raise UsageError(
                "--tensor-parallel-size without --pipeline-parallel-size",
                next_step=f"give both; -pp {nodes} puts one stage on each box",
            )
        extra = (*extra, "-tp", str(rig.cards.count), "-pp", str(nodes))
    options = replace(options, port=rig.defaults.port, extra_arguments=extra)
    dry_run = served.has("--dry-run")
    if not dry_run:
        # A shim on PATH has no programs beside it: plan with the interpreter that it leads to.
        options = replace(options, python=describe(options.python).python)
    plan = plan_serve(options, known=Known(rig=rig))
    file = line.values.get("--token-file")
    cluster = Cluster(
        address=own.address,
        interface=own.name,
        nodes=nodes,
        cards=line.count("--cards") or math.ceil(plan.devices / nodes),
        token_file=Path(file).absolute() if file else default_token_file(),
        port=ray_port,
        join_timeout_s=line.seconds("--join-timeout") or 600.0,
    )
    return Head(
        plan,
        cluster,
        rig,
        dry_run=dry_run,
        check_options=not served.has("--no-option-check"),
        health_every_s=served.seconds("--health-every"),
        health_failures=served.count("--health-failures") or 3,
        api_key=value_of(extra, "--api-key") or os.environ.get("VLLM_API_KEY"),
    )


def plan_join(argv: Sequence[str]) -> JoinOptions:
    """Read a command line of `ray-join`.

    Raises:
        RigError: it makes no sense, or the token file is not this user's alone.
    """
    line = take(argv, _JOIN_OPTIONS)
    values = line.values
    rehearse = "--rehearse" in line.rest
    rest = [word for word in line.rest if word != "--rehearse"]
    if len(rest) != 1 or rest[0].startswith("-"):
        raise UsageError(
            "one address of a head is needed",
            where=" ".join(rest) or None,
            next_step="ray-join.sh HEAD_ADDRESS --token-file FILE; see --help",
        )
    host, port = parse_head(rest[0])
    if "--token-file" not in values:
        raise UsageError(
            "no token file was named",
            next_step="copy the head's token file here and name it: --token-file FILE",
        )
    token_file = Path(values["--token-file"]).absolute()
    check_token_file(token_file)
    found = interfaces()
    own = choose(values.get("--advertise") or address_towards(host, port), None, found)
    cards = line.count("--cards")
    if cards is None and rehearse:
        raise UsageError("a rehearsal has no cards to count", next_step="say how many: --cards N")
    name = time.strftime("join-%Y%m%d-%H%M%S-") + str(os.getpid())
    folder = values.get("--log-folder")
    return JoinOptions(
        head=f"{host}:{port}",
        python=choose_python(values.get("--python")),
        log_folder=Path(folder) if folder else logs_folder() / name,
        cluster=Cluster(
            address=own.address,
            interface=own.name,
            nodes=2,
            cards=cards or _cards_here(),
            token_file=token_file,
        ),
        rehearse=rehearse,
    )


def _cards_here() -> int:
    from rig.box.read import read_box

    cards = read_box().cards
    if not cards:
        raise RigError(
            "the driver shows no cards to lend",
            next_step="see `./rig doctor`, or say how many: --cards N",
        )
    return len(cards)
