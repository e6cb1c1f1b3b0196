"""Writing a file so that its final name never holds half of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rig.console import console
from rig.errors import RigError, first_line_of_os_error

_PART = ".part"


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary file next to the target, which takes the target's name when all went well.

    Only one build writes into a folder at a time; what a killed one left there is removed.

    Raises:
        RigError: the folder cannot be made or written, or the disk is full.
    """
    folder = target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            for stale in folder.glob(f".*{_PART}"):
                stale.unlink()
            part = folder / f".{target.name}{_PART}"
            try:
                yield part
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise RigError(
            f"cannot write {target.name}: {first_line_of_os_error(error)}",
            where=folder,
            next_step="free some space and run the same command again"
            if full
            else "make the folder writable and run the same command again",
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        console.print(f"another build writes into {folder}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
