"""A lock between processes that lasts as long as any process works under it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.console import console


@contextmanager
def locked(path: Path, what: str) -> Iterator[int]:
    """Hold a lock file, waiting for whoever holds it; yields its file descriptor.

    A child that is given the descriptor (`pass_fds`) holds the lock too: if this process is
    killed, the next one waits until the orphan has ended, and does not clear away what is still
    being written.

    Args:
        what: what the other one is doing, for the line that is shown while waiting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"waiting: another run is {what} ({path})", markup=False)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
