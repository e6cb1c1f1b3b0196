"""NVML is asked by a child process with a time limit: a driver that hangs cannot hang us.

A process inside such a driver may not even die when it is killed; so it is killed, waited for a
moment, and then left behind, with a note.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rig.box.nvml import NvmlFacts

# Without persistence mode each card is initialised when it is first asked: seconds per card.
LIMIT_S = 20.0
LIBRARY = "libnvidia-ml.so.1"  # the one name by which pynvml loads it on Linux
_LAST_WAIT_S = 0.5


def child_command() -> tuple[str, ...]:
    """The tools' own Python reading NVML; -P keeps the current folder off its path."""
    return (sys.executable, "-P", "-m", "rig.box.nvml")


def _cannot_load() -> str | None:
    """Why the driver's library cannot be loaded, or None. Loading it asks the driver nothing."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return str(error)
    return None


def read_nvml_in_child(command: Sequence[str] | None = None, limit_s: float = LIMIT_S) -> NvmlFacts:
    """What a child process reads of NVML.

    Args:
        command: the program that prints NvmlFacts as JSON; if None, `child_command`, which is not
            even started when the library cannot be loaded.
        limit_s: seconds after which it is given up.
    """
    if command is None and (missing := _cannot_load()) is not None:
        return NvmlFacts(notes=(f"no NVIDIA driver answers: {missing}",))
    environment = dict(os.environ)
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    # NVML shows all cards, but CUDA's variable must not even seem to matter here.
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        child = subprocess.Popen(
            tuple(command or child_command()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return NvmlFacts(notes=(f"NVML was not read: {error.strerror or error}",))
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WAIT_S)
        left = "" if child.returncode is not None else f"; process {child.pid} cannot be killed"
        hangs = f"the NVIDIA driver did not answer within {limit_s:g} s{left}"
        return NvmlFacts(notes=(hangs,))
    except BaseException:
        child.kill()
        raise
    try:
        return NvmlFacts.model_validate_json(out)
    except ValidationError:
        last = err.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return NvmlFacts(notes=(f"NVML was not read: exit {child.returncode}, {last[0]}",))
