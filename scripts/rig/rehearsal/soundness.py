"""Whether an engine's environment is still whole, as it was installed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rig.errors import RigError
from rig.wheel.installed import check_installation

# An environment has some 70000 files; to look for each takes a second on a warm disk.
_TIMEOUT_SECONDS = 300
_SHOWN_FILES = 5
_COMMANDS = ("vllm", "ray")

# RECORD is read here because `Distribution.files` leaves out, in newer Pythons, what is missing.
_SCRIPT = """
import csv, importlib.metadata, json, os
wrong = []
for dist in importlib.metadata.distributions():
    record = dist.read_text("RECORD")
    if record is None:
        wrong.append(f"{dist._path}: it has no list of its files")
        continue
    base = str(dist.locate_file(""))
    for name, _, size in csv.reader(record.splitlines()):
        if name.endswith(".pyc"):
            continue
        try:
            found = os.stat(os.path.join(base, name)).st_size
        except OSError:
            wrong.append(f"missing: {name}")
        else:
            if size and found != int(size):
                wrong.append(f"not of its size: {name}")
print(json.dumps(wrong))
"""


class Check(Protocol):
    """Says what is wrong with an environment that must hold a version of vLLM, or None."""

    def __call__(self, folder: Path, version: str) -> str | None: ...


def what_is_wrong(folder: Path, version: str) -> str | None:
    """What is wrong with an environment, in one line, or None when it is whole.

    The patched files are hashed; every other file that was installed must be there, in its size.
    """
    python = folder / "bin" / "python"
    try:
        installed = check_installation(python)
    except RigError as error:
        return _one_line(error.what, (error.detail or "").splitlines())
    if installed.version != version:
        return f"it holds vLLM {installed.version}, not {version}"
    wrong = [f"missing: bin/{c}" for c in _COMMANDS if not (folder / "bin" / c).is_file()]
    try:
        wrong += _files_that_differ(python)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"its interpreter cannot list what is installed: {error}"
    return _one_line("files differ from what was installed", wrong) if wrong else None


def _files_that_differ(python: Path) -> list[str]:
    done = subprocess.run(
        [str(python), "-I", "-c", _SCRIPT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    # An environment's own start-up files may print: ours is the last line.
    found: list[str] = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])
    return found


def _one_line(what: str, details: Sequence[str]) -> str:
    shown = [line.strip() for line in details if line.strip()]
    more = [f"and {len(shown) - _SHOWN_FILES} more"] if len(shown) > _SHOWN_FILES else []
    return ": ".join([what, "; ".join([*shown[:_SHOWN_FILES], *more])]) if shown else what
