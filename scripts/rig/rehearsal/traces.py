"""What a launch could leave behind, seen from outside of the launcher.

The launcher stops and removes what it knows of. This looks again, by another sign than the
launcher uses: an engine's process maps libraries of the engine's environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Traces:
    """What is there at one moment.

    Args:
        processes: "pid (name)" of each process that maps a file of the environment.
        used: the files in /dev/shm that those processes map or hold open.
        unused: the files of this user in /dev/shm that no process maps or holds open.
    """

    processes: frozenset[str]
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


def traces(environment: Path, *, proc: Path = _PROC, shm: Path = _SHARED_MEMORY) -> Traces:
    """Look for the processes of an environment, and for shared memory."""
    inside = f"{environment.resolve()}/"
    # Files first: one that appears while the processes are looked at has an owner unseen.
    there = set(_own_files_below(shm))
    processes: set[str] = set()
    used: set[str] = set()
    used_by_others: set[str] = set()
    for pid in _pids(proc):
        mapped = set(_mapped_files(proc / pid / "maps"))
        files = {path for path in mapped if path.startswith(f"{shm}/")}
        files |= {p for p in _open_files(proc / pid / "fd") if p.startswith(f"{shm}/")}
        if any(path.startswith(inside) for path in mapped):
            processes.add(f"{pid} ({_name(proc / pid / 'comm')})")
            used |= files
        else:
            used_by_others |= files
    unused = {path for path in there - used - used_by_others if Path(path).exists()}
    return Traces(frozenset(processes), frozenset(used), frozenset(unused))


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
        remains = _remains(traces(environment), before, seen)
        if not remains or time.monotonic() > deadline:
            return remains
        time.sleep(0.2)


def _remains(now: Traces, before: Traces, seen: frozenset[str]) -> Remains:
    files = now.unused - before.unused
    ours = [
        *(f"process {process}" for process in sorted(now.processes - before.processes)),
        *(f"file {path}" for path in sorted(files & seen)),
    ]
    return Remains(tuple(ours), tuple(f"file {path}" for path in sorted(files - seen)))


def _pids(proc: Path) -> list[str]:
    return [entry.name for entry in proc.iterdir() if entry.name.isdigit()]


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


def _name(comm: Path) -> str:
    try:
        return comm.read_text("utf-8", "replace").strip()
    except OSError:
        return "?"
