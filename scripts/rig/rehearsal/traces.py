"""What a launch could leave behind, seen from outside of the launcher.

The launcher stops and removes what it knows of. This looks again, by another sign than the
launcher uses: an engine's process maps libraries of the engine's environment. Another run may use
the same environment at the same time; its processes are told from ours by what lives above them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rig.launch.processes import read_process

_PROC = Path("/proc")
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Seen:
    """A process that was seen: the same one later, even if it has another name by then.

    Args:
        started: clock ticks from boot to its start.
    """

    pid: int
    started: int
    name: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.pid} ({self.name})"


@dataclass(frozen=True)
class Traces:
    """What is there at one moment.

    Args:
        processes: each process that maps a file of the environment.
        used: the files in /dev/shm that those processes map or hold open.
        unused: the files of this user in /dev/shm that no process maps or holds open.
    """

    processes: frozenset[Seen]
    used: frozenset[str]
    unused: frozenset[str]


@dataclass(frozen=True)
class Remains:
    """What a launch left.

    Args:
        ours: its processes, and files that they were seen to use, in words.
        of_whoever: files that appeared meanwhile and that none of its processes was seen with:
            another program's, most likely.
    """

    ours: tuple[str, ...]
    of_whoever: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.ours or self.of_whoever)


def traces(
    environment: Path, *, shm: Path = _SHARED_MEMORY, before: Traces | None = None
) -> Traces:
    """Look for the processes of an environment, and for shared memory.

    Args:
        before: what was there before a launch of this process. Then what belongs to another run
            is left out: it may have started since.
    """
    inside = f"{environment.resolve()}/"
    # Files first: one that appears while the processes are looked at has an owner unseen.
    there = set(_own_files_below(shm))
    processes: set[Seen] = set()
    used: set[str] = set()
    used_by_others: set[str] = set()
    for pid in _pids():
        mapped = set(_mapped_files(_PROC / str(pid) / "maps"))
        files = {path for path in mapped if path.startswith(f"{shm}/")}
        files |= {p for p in _open_files(_PROC / str(pid) / "fd") if p.startswith(f"{shm}/")}
        seen = _seen(pid) if any(path.startswith(inside) for path in mapped) else None
        if seen is not None and not (before and _of_another_run(pid, before)):
            processes.add(seen)
            used |= files
        else:
            used_by_others |= files
    unused = {path for path in there - used - used_by_others if Path(path).exists()}
    return Traces(frozenset(processes), frozenset(used), frozenset(unused))


def _of_another_run(pid: int, before: Traces) -> bool:
    """Whether a process lives below another run of these tools, or below one that was there before.

    A run's processes stay below its keeper while that lives. Our keeper is below this process,
    and so is all that it keeps; what it failed to end is below no keeper.
    """
    line = list(_ancestors(pid))
    if any(_seen(above) in before.processes for above in line):
        return True
    # What started these tools may be a run too (`./rig test`, say), and holds both sides.
    shared = set(_ancestors(os.getpid()))
    return os.getpid() not in line and any(_is_run(p) for p in line if p not in shared)


def _is_run(pid: int) -> bool:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    modules = [word for flag, word in pairwise(words) if flag == b"-m"]
    return any(module == b"rig" or module.startswith(b"rig.") for module in modules)


def _ancestors(pid: int) -> Iterator[int]:
    process = read_process(pid)
    while process is not None and process.parent > 0:
        yield process.parent
        process = read_process(process.parent)


def _seen(pid: int) -> Seen | None:
    process = read_process(pid)
    return Seen(process.pid, process.started, process.name) if process else None


def what_remains(
    environment: Path, before: Traces, during: Iterable[Traces], patience: float = 3.0
) -> Remains:
    """What of a launch is left after it; what others are just making or removing is not.

    Args:
        before: what was there before the launch.
        during: what was there while it ran.
        patience: seconds to look again and again while anything is there.
    """
    seen = frozenset[str]().union(*(moment.used for moment in during))
    deadline = time.monotonic() + patience
    while True:
        remains = _remains(traces(environment, before=before), before, seen)
        if not remains or time.monotonic() > deadline:
            return remains
        time.sleep(0.2)


def _remains(now: Traces, before: Traces, seen: frozenset[str]) -> Remains:
    files = now.unused - before.unused
    ours = [
        *(f"process {process}" for process in sorted(map(str, now.processes - before.processes))),
        *(f"file {path}" for path in sorted(files & seen)),
    ]
    return Remains(tuple(ours), tuple(f"file {path}" for path in sorted(files - seen)))


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _mapped_files(maps: Path) -> Iterator[str]:
    try:
        text = maps.read_text("utf-8", "replace")
    except OSError:  # it has ended, or it is another user's
        return
    for line in text.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6:
            yield fields[5].removesuffix(" (deleted)")


def _open_files(descriptors: Path) -> Iterator[str]:
    try:
        links = list(descriptors.iterdir())
    except OSError:
        return
    for link in links:
        try:
            yield str(link.readlink())
        except OSError:
            continue


def _own_files_below(folder: Path) -> Iterator[str]:
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root) / name
            try:
                if path.lstat().st_uid == os.getuid():
                    yield str(path)
            except OSError:
                continue
