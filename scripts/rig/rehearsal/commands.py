"""Runs the commands that set up and question the engine's environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rig.errors import RigError, first_line_of_os_error

_TAIL_LINES = 25
# These would make pip install into another place than the environment that it runs in.
_MISLEADING = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_NO_DEPS", "PIP_DRY_RUN")


class Runner(Protocol):
    """Runs a command, logs it, and raises RigError if it fails."""

    def __call__(self, command: Sequence[str], log: Path, lock: int) -> None: ...


def run_logged(command: Sequence[str], log: Path, lock: int) -> None:
    """Run a command with its output appended to a log.

    Args:
        log: where the output goes.
        lock: a lock's file descriptor, which the command holds as long as it lives.

    Raises:
        RigError: it cannot be started or fails; shows the last lines of the log.
    """
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={k: v for k, v in os.environ.items() if k not in _MISLEADING},
                pass_fds=(lock,),
                check=False,
            )
        except OSError as error:
            raise RigError(
                f"cannot run {command[0]}: {first_line_of_os_error(error)}", where=log
            ) from error
    if done.returncode != 0:
        tail = "\n".join(log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:])
        raise RigError(
            f"a command failed with status {done.returncode}: {' '.join(command[:6])} ...",
            where=log,
            detail=tail,
            next_step=_advice(tail),
        )


def _advice(tail: str) -> str:
    if "No space left on device" in tail:
        return "free several GB and run the same command again"
    if "ensurepip" in tail or "No module named venv" in tail:
        return "install Python's venv module (python3-venv on Debian), then run it again"
    # pip says "ResolutionImpossible" of a constrained package that no index of its has.
    if any(word in tail for word in ("No matching distribution", "Connection", "Resolution")):
        return "connect to a package index once; afterwards everything works offline"
    return "read the log, then run the same command again: it starts afresh"


def ask_engine(
    python: Path,
    module: str,
    arguments: Sequence[str],
    stdin: str,
    path: Path,
    lock: int | None = None,
) -> str:
    """Run a module of ours in the engine's environment; returns its standard output.

    Args:
        python: the environment's interpreter.
        stdin: what the module reads.
        path: the folder that holds the package `rig`.
        lock: a lock's file descriptor, which the module holds as long as it runs.

    Raises:
        RigError: it cannot be started or failed; shows the last lines of what it said.
    """
    keep = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    # Nothing is looked up on a model hub; the models are made here.
    env = keep | {"PYTHONPATH": str(path), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    again = f"run the same command again; if that does not help, remove {python.parents[1]} first"
    try:
        done = subprocess.run(
            [str(python), "-m", module, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=env,
            pass_fds=() if lock is None else (lock,),
            check=False,
        )
    except OSError as error:
        raise RigError(
            f"cannot run {module} in the engine's environment: {first_line_of_os_error(error)}",
            where=python,
            next_step=again,
        ) from error
    if done.returncode != 0:
        raise RigError(
            f"{module} failed with status {done.returncode} in the engine's environment",
            where=python,
            detail="\n".join(done.stderr.splitlines()[-_TAIL_LINES:]),
            next_step=again,
        )
    return done.stdout
