"""The command line of `serve`: our few options are taken out, the rest is vLLM's."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import platformdirs

from rig.errors import RigError
from rig.launch.engine_environment import choose_python
from rig.launch.plan import Executor, ServeOptions

DEFAULT_PORT = 8000

HELP = """\
usage: serve-4x3090.sh MODEL [vLLM's arguments ...] [our options]
       serve.sh --rig NAME MODEL [vLLM's arguments ...] [our options]

Serve MODEL (a Hugging Face name or a folder) over the OpenAI API: look at the box, plan its
memory, start a private Ray cluster that only this box reaches and the engine on it, prove what
runs. Ctrl-C stops everything and leaves nothing behind. Arguments of `vllm serve` are passed on as
they are and win over ours.

our options:
  --dry-run               print the exact environment and commands, with reasons; start nothing
  --rig NAME              a name of scripts/rigs (4x3090), a path to a .toml, or auto
  --rehearse              no GPUs: the CPU build on as many logical devices, nothing downloaded
  --python PATH           the Python that vLLM is installed for
                          (else VLLM_RIG_PYTHON, else the active environment, else python3)
  --executor ray|mp       who runs the ranks: a private Ray cluster (default) or vLLM itself
  --no-plan               do not plan the memory; the ranks are the rig's
  --no-option-check       let vLLM itself say what it does not know, after seconds
  --custom-all-reduce-pcie
                          custom all-reduce on more than two PCIe cards, if `./rig p2p` proved it
  --ready-timeout SECONDS how long the engine may take to load (default 600)
  --health-every SECONDS  ask for a real token so often while serving (default: never)
  --health-failures N     so many failures in a row are the end (default 3)
  --log-folder FOLDER     where engine.log and ray.log go
  --allow-open-sockets    only warn of sockets that other machines can reach
  -h, --help              this text; for vLLM's arguments: `vllm serve --help=all`

exit status: 0 stopped by you, 1 it did not start, 2 wrong usage, 3 the box is not fit for it,
4 the model does not fit, 5 it served and then the engine, a rank or its health was lost
"""

_WITH_VALUE = (
    "--python",
    "--executor",
    "--ready-timeout",
    "--log-folder",
    "--rig",
    "--health-every",
    "--health-failures",
)
_ALONE = (
    "--dry-run",
    "--rehearse",
    "--allow-open-sockets",
    "--no-plan",
    "--no-option-check",
    "--custom-all-reduce-pcie",
)
OUR_OPTIONS = (*_WITH_VALUE, *_ALONE)


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

    def seconds(self, option: str) -> float | None:
        """The value of an option in seconds; None if it is not there.

        Raises:
            UsageError: it is no number above 0.
        """
        if option not in self.values:
            return None
        try:
            seconds = float(self.values[option])
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds <= 0:
            raise UsageError(
                f"{option} is {self.values[option]!r}",
                next_step="give a number of seconds greater than 0",
            )
        return seconds

    def count(self, option: str) -> int | None:
        """The value of an option that counts; None if it is not there.

        Raises:
            UsageError: it is no whole number above 0.
        """
        if option not in self.values:
            return None
        text = self.values[option]
        if not text.isascii() or not text.isdecimal() or int(text) < 1:
            raise UsageError(f"{option} is {text!r}", next_step="give a whole number, 1 or more")
        return int(text)


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


def rig_name_of(line: CommandLine, rig_name: str | None = None) -> str:
    """The name of the rig that is meant.

    Raises:
        UsageError: none was named.
    """
    name = line.values.get("--rig", rig_name)
    if not name:
        raise UsageError("no rig was named", next_step="add --rig 4x3090, or --rig auto")
    return name


def options_of(line: CommandLine, rig_name: str | None, ranks: int | None = None) -> ServeOptions:
    """What the command line asks for; the interpreter is chosen, nothing else is looked at.

    Args:
        line: the split command line.
        rig_name: the rig, if --rig is not among them.
        ranks: how many cards that rig has; looked up if None.

    Raises:
        RigError: it asks for what there is not.
    """
    if not line.rest or line.rest[0].startswith("-"):
        raise UsageError(
            "no model was named",
            where=line.rest[0] if line.rest else None,
            next_step="`make serve MODEL=NAME`; or `scripts/serve.sh --rig 4x3090 NAME`, vLLM's "
            "arguments after it; see --help",
        )
    rig = rig_name_of(line, rig_name)
    executor = line.values.get("--executor", "ray")
    if executor not in ("ray", "mp"):
        raise UsageError(f"--executor is {executor!r}", next_step="use ray or mp")
    timeout_s = line.seconds("--ready-timeout") or 600.0
    name = time.strftime("serve-%Y%m%d-%H%M%S-") + str(os.getpid())
    folder = line.values.get("--log-folder")
    return ServeOptions(
        model=line.rest[0],
        python=choose_python(line.values.get("--python")),
        log_folder=Path(folder).absolute() if folder else logs_folder() / name,
        ranks=ranks if ranks is not None else ranks_of_rig(rig),
        extra_arguments=tuple(line.rest[1:]),
        executor=cast(Executor, executor),
        rehearse=line.has("--rehearse"),
        port=DEFAULT_PORT,
        ready_timeout_s=timeout_s,
        allow_open_sockets=line.has("--allow-open-sockets"),
        custom_all_reduce_pcie=line.has("--custom-all-reduce-pcie"),
    )


def ranks_of_rig(name: str) -> int:
    """The number of cards of a rig, e.g. 4 of "4x3090".

    Raises:
        RigError: there is no such rig.
    """
    from rig.box.rigs import find_rig

    return find_rig(name).cards.count


def logs_folder() -> Path:
    """Where the logs of all serves lie, one folder each."""
    return Path(platformdirs.user_log_dir("vllm-rig", appauthor=False))
