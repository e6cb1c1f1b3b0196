"""Read a log while it grows, and find the line in it that says why."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rig.errors import RigError, first_line_of_os_error

# "(EngineCore pid=123) ERROR 11-29 16:00:00 [core.py:123] " and "(RayWorkerProc pid=1) " and
# "[rank0]: ": who spoke and when, before what was said.
_PREFIX = re.compile(
    r"^(?:\x1b\[[0-9;]*m)*(?:\([^)]*\bpid=[^)]*\)\s*)*(?:\x1b\[[0-9;]*m)*"
    r"(?:(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)\s+[\d-]+\s+[\d:.,]+\s+\[[^\]]*\]\s*)?"
    r"(?:\[rank\d+\]:\s*)?"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*|[\w.-]+: error: .*)"
)
# Errors that only report that something else failed.
_CONSEQUENCES = (
    "Engine core initialization failed",
    "EngineDeadError",
    "EngineCore encountered",
    "WorkerProc initialization failed",
    "Failed core proc",
)
# What `ray start --block` says of a process of its own that ended, before that one's last words.
_RAY_PART = re.compile(r"^[^\n]* -- (\w+) \[exit code=(-?\d+)\]$", re.MULTILINE)
_KEPT_LAUNCHES = 20
_STORE = re.compile(r"distributed_init_method=tcp://[^\s,]*?:(\d+)")


def make_log_folder(folder: Path) -> None:
    """Make the folder of a launch's logs if it is missing; RigError if it cannot be made.

    A new one is this user's alone: an engine may log what people ask it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RigError(
            f"the folder for logs cannot be made: {first_line_of_os_error(error)}",
            where=folder,
            next_step="name another one: --log-folder",
        ) from error


def forget_old_logs(folder: Path) -> None:
    """Remove all but the last launches' folders of each kind, as a unit may try for ever."""
    try:
        of_each = [sorted(folder.glob(pattern)) for pattern in ("serve-*", "join-*")]
    except OSError:
        return
    old = [one for launches in of_each for one in launches[:-_KEPT_LAUNCHES]]
    for one in old:
        shutil.rmtree(one, ignore_errors=True)


def spoken(line: str) -> str:
    """A log line without colours and without who said it when."""
    return _PREFIX.sub("", _COLOUR.sub("", line)).rstrip()


def causes(text: str) -> list[str]:
    """The lines of a log that name an error, without repeats, the deepest cause first."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        said = spoken(line)
        if _CAUSE.match(said) and "Warning" not in said.partition(":")[0]:
            found.setdefault(said)
    deep = [said for said in found if not any(word in said for word in _CONSEQUENCES)]
    return deep or list(found)


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log; "" if there is none."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


class Ending(NamedTuple):
    """What a program's log says about its end: the cause in one line or "", its last lines, and
    what to do about it where that is known."""

    cause: str
    last: str
    next_step: str | None


def why_it_ended(path: Path, lines: int = 12) -> Ending:
    """Read a log of Ray's or of the engine's for what ended it."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return Ending("", "", None)
    from rig.engine_log import known_failure

    said = text.splitlines()
    found = causes(text)
    cause, next_step = (found[-1] if found else ""), None
    known = known_failure(said)
    if known is not None:
        meaning, next_step = known
        if cause and not cause.startswith(meaning[:60]):
            cause = f"{meaning} ({cause[:200]})"
        else:
            cause = cause or meaning
    part = _RAY_PART.search(text)
    if part is not None:
        name, code = part[1], int(part[2])
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        cause = f"Ray's {name} {how}" + (f": {cause}" if cause else "")
        said = text[: part.end()].splitlines()
        if code == -9:
            next_step = next_step or "a killed process often means that memory ran out: see `dmesg`"
    return Ending(cause, "\n".join(said[-lines:]), next_step or None)


def store_ports(path: Path) -> set[int]:
    """The ports at which the engine's log says that its ranks meet (torch's store)."""
    try:
        return {int(port) for port in _STORE.findall(path.read_text(errors="replace"))}
    except OSError:
        return set()


class Follower:
    """New lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> Iterator[str]:
        """The whole lines written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
