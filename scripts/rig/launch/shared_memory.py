"""The files in /dev/shm that are provably ours.

vLLM leaves some there when it is told to stop. A name alone proves nothing (`psm_1a2b3c4d` may be
anyone's), so only a file that one of our processes was seen to map or hold open is ever removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rig.launch.processes import PROC, all_pids, open_files

SHARED_MEMORY = Path("/dev/shm")
_DELETED = " (deleted)"


@dataclass(frozen=True)
class SharedFile:
    """One file: the name, and the inode that tells it from a later file of the same name."""

    path: str
    inode: int


def _mapped(pid: int, folder: str) -> set[SharedFile]:
    found: set[SharedFile] = set()
    try:
        with (PROC / str(pid) / "maps").open(errors="replace") as lines:
            for line in lines:
                start = line.find(folder)
                if start < 0:
                    continue
                path = line[start:].rstrip("\n")
                if not path.endswith(_DELETED):
                    found.add(SharedFile(path, int(line[:start].split()[4])))
    except OSError:
        pass
    return found


def _opened(pid: int, folder: str) -> set[SharedFile]:
    found: set[SharedFile] = set()
    for descriptor, path in open_files(pid):
        if path.startswith(folder) and not path.endswith(_DELETED):
            with contextlib.suppress(OSError):
                found.add(SharedFile(path, descriptor.stat().st_ino))
    return found


def used_by(pids: Iterable[int], folder: Path = SHARED_MEMORY) -> set[SharedFile]:
    """The files below the folder that these processes map or hold open now."""
    prefix = f"{folder}/"
    found: set[SharedFile] = set()
    for pid in pids:
        found |= _mapped(pid, prefix) | _opened(pid, prefix)
    return found


def inodes(folder: Path = SHARED_MEMORY) -> frozenset[int]:
    """The files that the folder has now."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                found.add(path.lstat().st_ino)
    return frozenset(found)


def remove_unused(
    files: Iterable[SharedFile], folder: Path = SHARED_MEMORY
) -> tuple[list[str], list[str]]:
    """Remove those of our files that are still there and that nobody uses.

    Returns:
        The paths that were removed, and those that should have been and could not be. A file
        that has another inode or owner than ours, or that some process still uses, is left alone.
    """
    present = [file for file in files if _is_ours(file)]
    if not present:
        return [], []
    in_use = used_by(all_pids(), folder)
    removed: list[str] = []
    failed: list[str] = []
    for file in present:
        if file in in_use:
            continue
        try:
            Path(file.path).unlink()
        except FileNotFoundError:
            continue
        except OSError:
            failed.append(file.path)
        else:
            removed.append(file.path)
    return sorted(removed), sorted(failed)


def _is_ours(file: SharedFile) -> bool:
    try:
        status = Path(file.path).lstat()
    except OSError:
        return False
    return status.st_ino == file.inode and status.st_uid == os.getuid()
