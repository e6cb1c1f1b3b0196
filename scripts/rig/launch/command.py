"""The `serve` command: look, plan, decide, start, prove, watch, stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rig.console import console, out
from rig.errors import RigError
from rig.launch.command_line import (
    HELP,
    CommandLine,
    UsageError,
    logs_folder,
    options_of,
    ranks_of_rig,
    split_command_line,
)
from rig.launch.dry_run import as_shell_script
from rig.launch.engine_environment import require_rig_build
from rig.launch.engine_files import write_files
from rig.launch.logs import Follower, forget_old_logs
from rig.launch.plan import ServePlan
from rig.launch.proof import proof
from rig.launch.refused import Refused
from rig.launch.serve import serving
from rig.launch.signals import stop_signals
from rig.launch.steps import Steps
from rig.launch.supervise import FAILED, STOPPED, USAGE, Supervisor, exit_code, status

__all__ = [
    "CommandLine",
    "Printer",
    "UsageError",
    "options_of",
    "proof",
    "ranks_of_rig",
    "serve_main",
    "split_command_line",
]

_EVERY_S = 10.0


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
        if "--rig" not in line.values and rig_name is not None:
            line.values["--rig"] = rig_name
        steps = Steps(line, tell=_tell(Printer()), check_installation=require_rig_build)
        with stop_signals():  # a step's own child must not outlive a SIGTERM
            if line.has("--dry-run"):
                out.print(as_shell_script(steps.dry_run()), end="")
                return STOPPED
            plan = steps.prepare()
        _run(plan, steps)
    except Refused as refused:
        return _fail(refused.error, refused.code)
    except UsageError as error:
        return _fail(error, USAGE)
    except RigError as error:
        return _fail(error, exit_code(error))
    except KeyboardInterrupt:
        return STOPPED
    return FAILED


def _fail(error: RigError, code: int) -> int:
    status(error.what)
    console.print(str(error), markup=False)
    return code


def _run(plan: ServePlan, steps: Steps) -> None:
    forget_old_logs(logs_folder())
    write_files(plan)
    with serving(
        plan, check_installation=lambda _: steps.installation, progress=steps.tell
    ) as server:
        for row in proof(server):
            out.print(row)
        follower = Follower(server.engine_log)
        list(follower.new_lines())  # what was said so far was shown as progress
        with Supervisor(
            server.base_url,
            health_every_s=steps.health_every_s,
            health_failures=steps.health_failures,
            api_key=steps.api_key,
        ) as supervisor:
            while True:
                for said in follower.new_lines():
                    out.print(said)
                server.check_alive()
                supervisor.tick()
                time.sleep(0.25)


def _tell(printer: Printer) -> Callable[[str], None]:
    def tell(line: str) -> None:
        status(line)
        printer(line)

    return tell


class Printer:
    """Progress for people: each step on a line, the engine's chatter in place or now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, line: str) -> None:
        if line.startswith("loading"):
            if console.is_terminal:
                shown = line[: console.width - 1].ljust(console.width - 1)
                console.print(shown, end="\r", markup=False)
                return
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + _EVERY_S
        console.print(line.ljust(console.width - 1) if console.is_terminal else line, markup=False)
