"""Hold a lock file; whoever must wait for it is told for what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rig.console import console

_SILENT_SECONDS = 0.2


@contextmanager
def hold(path: Path, waiting: str) -> Iterator[None]:
    """Hold the lock file `path` as long as the block lasts.

    Args:
        path: its folder must exist.
        waiting: the line that is printed when another run holds it.

    Raises:
        OSError: the file cannot be made.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=_SILENT_SECONDS)
    except Timeout:
        console.print(waiting, markup=False)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
