"""The `serve` command: our few flags, the rest is vLLM's."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import platformdirs

from rig.console import console, out
from rig.errors import RigError
from rig.launch.dry_run import as_shell_script
from rig.launch.engine_environment import choose_python, describe, require_rig_build
from rig.launch.logs import Follower
from rig.launch.plan import Executor, ServeOptions, ServePlan, plan_serve
from rig.launch.serve import RunningServer, serving

STOPPED, FAILED, WRONG_USAGE = 0, 1, 2
DEFAULT_PORT = 8000
_KEPT_LOGS = 20
_EVERY_S = 10.0

HELP = """\
usage: serve-4x3090.sh MODEL [vLLM's arguments ...] [our options]
       serve.sh --rig NAME MODEL [vLLM's arguments ...] [our options]

Serve MODEL (a Hugging Face name or a folder) over the OpenAI API, on a private Ray cluster that
only this box reaches. Ctrl-C stops everything and leaves nothing behind. Arguments of
`vllm serve` are passed on as they are and win over ours.

our options:
  --dry-run               print the exact environment and commands, with reasons; start nothing
  --python PATH           the Python that vLLM is installed for
                          (else VLLM_RIG_PYTHON, else the active environment, else python3)
  --executor ray|mp       who runs the ranks: a private Ray cluster (default) or vLLM itself
  --rehearse              no GPUs: the CPU build on as many logical devices, nothing downloaded
  --ready-timeout SECONDS how long the engine may take to load (default 600)
  --log-folder FOLDER     where engine.log and ray.log go
  --allow-open-sockets    only warn of sockets that other machines can reach
  --rig NAME              how many cards: 1x3090, 2x3090, 4x3090, 8x3090
  -h, --help              this text; for vLLM's arguments: `vllm serve --help=all`

exit status: 0 stopped by you, 1 failure, 2 wrong usage
"""

_WITH_VALUE = ("--python", "--executor", "--ready-timeout", "--log-folder", "--rig")
_ALONE = ("--dry-run", "--rehearse", "--allow-open-sockets")


class UsageError(RigError):
    """The command line makes no sense."""


@dataclass
class CommandLine:
    """Our options, and what is left for vLLM."""

    values: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    help: bool = False

    def has(self, option: str) -> bool:
        return option in self.values


def split_command_line(arguments: Sequence[str]) -> CommandLine:
    """Take our options out, wherever they stand. (argparse would read vLLM's `-hf` as `-h -f`.)

    Raises:
        UsageError: one of our options lacks its value, or gets one that it does not take.
    """
    line = CommandLine()
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        if argument in ("-h", "--help"):
            line.help = True
        elif name in _ALONE:
            if equals:
                raise UsageError(f"{name} takes no value", where=argument)
            line.values[name] = ""
        elif name in _WITH_VALUE:
            if not equals:
                if not waiting:
                    raise UsageError(f"{name} needs a value", next_step="see --help")
                value = waiting.pop(0)
            line.values[name] = value
        else:
            line.rest.append(argument)
    return line


def ranks_of_rig(name: str) -> int:
    """The number of cards in a rig's name, e.g. 4 of "4x3090".

    Raises:
        UsageError: the name does not say.
    """
    match = re.fullmatch(r"([1-9]\d*)x\w+", name)
    if match is None:
        raise UsageError(f"{name!r} does not name a rig", next_step="name one like 4x3090")
    return int(match[1])


def options_of(line: CommandLine, rig_name: str | None) -> ServeOptions:
    """What the command line asks for; the interpreter is chosen, nothing else is looked at.

    Raises:
        UsageError: it asks for what there is not.
    """
    if not line.rest or line.rest[0].startswith("-"):
        raise UsageError(
            "no model was named",
            where=line.rest[0] if line.rest else None,
            next_step="name it first, vLLM's arguments after it; see --help",
        )
    rig = line.values.get("--rig", rig_name)
    if rig is None:
        raise UsageError("no rig was named", next_step="say how many cards: --rig 4x3090")
    executor = line.values.get("--executor", "ray")
    if executor not in ("ray", "mp"):
        raise UsageError(f"--executor is {executor!r}", next_step="use ray or mp")
    try:
        timeout_s = float(line.values.get("--ready-timeout", "600"))
    except ValueError:
        timeout_s = math.nan
    if not math.isfinite(timeout_s) or timeout_s <= 0:
        raise UsageError(
            f"--ready-timeout is {line.values['--ready-timeout']!r}",
            next_step="give a number of seconds greater than 0",
        )
    name = time.strftime("serve-%Y%m%d-%H%M%S-") + str(os.getpid())
    folder = line.values.get("--log-folder")
    return ServeOptions(
        model=line.rest[0],
        python=choose_python(line.values.get("--python")),
        log_folder=Path(folder) if folder else _logs() / name,
        ranks=ranks_of_rig(rig),
        extra_arguments=tuple(line.rest[1:]),
        executor=cast(Executor, executor),
        rehearse=line.has("--rehearse"),
        port=DEFAULT_PORT,
        ready_timeout_s=timeout_s,
        allow_open_sockets=line.has("--allow-open-sockets"),
    )


def serve_main(argv: Sequence[str], rig_name: str | None = None) -> int:
    """Run the command; the exit status (see HELP). RigErrors are printed, not raised.

    Args:
        argv: everything after the command's name: our options, the model, vLLM's arguments.
        rig_name: the rig, if --rig is not among them.
    """
    try:
        line = split_command_line(argv)
        if line.help:
            out.print(HELP, end="")
            return STOPPED
        options = options_of(line, rig_name)
        plan = plan_serve(options)
    except RigError as error:
        console.print(str(error), markup=False)
        return WRONG_USAGE
    try:
        if line.has("--dry-run"):
            out.print(as_shell_script(plan), end="")
            return STOPPED
        # A shim on PATH has no programs beside it: plan with the interpreter that it leads to.
        plan = plan_serve(_at_home(options))
        _run(plan)
    except RigError as error:
        console.print(str(error), markup=False)
    except KeyboardInterrupt:
        return STOPPED
    return FAILED


def _at_home(options: ServeOptions) -> ServeOptions:
    return replace(options, python=describe(options.python).python)


def _run(plan: ServePlan) -> None:
    for sentence in plan.conflicts:
        console.print(f"note: {sentence}", markup=False)
    _forget_old_logs()
    with serving(plan, check_installation=require_rig_build, progress=Printer()) as server:
        for row in proof(server):
            out.print(row)
        follower = Follower(server.engine_log)
        list(follower.new_lines())  # what was said so far was shown as progress
        while True:
            for said in follower.new_lines():
                out.print(said)
            server.check_alive()
            time.sleep(0.25)


def proof(server: RunningServer) -> list[str]:
    """What a user can check: who serves, on what, with which patches.

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
    for rank in ranks:
        where = f", Ray node {rank.node_id[:8]}" if rank.node_id else ""
        memory = rank.memory_bytes / 2**30
        rows.append((f"rank {rank.rank}", f"pid {rank.pid}{where}, {memory:.1f} GiB of memory"))
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


class Printer:
    """Progress for people: each step on a line, the engine's chatter in place or now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, line: str) -> None:
        if line.startswith("loading"):
            if console.is_terminal:
                console.print(line[: console.width - 1].ljust(console.width - 1), end="\r")
                return
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + _EVERY_S
        console.print(line.ljust(console.width - 1) if console.is_terminal else line, markup=False)


def _logs() -> Path:
    return Path(platformdirs.user_log_dir("vllm-rig", appauthor=False))


def _forget_old_logs() -> None:
    try:
        old = sorted(_logs().glob("serve-*"))[:-_KEPT_LOGS]
    except OSError:
        return
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
