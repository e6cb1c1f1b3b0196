"""Writing a file so that its final name never holds half of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.errors import RigError, first_line_of_os_error
from rig.waiting import hold

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
        with hold(folder / ".lock", f"another build writes into {folder}: waiting for it"):
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
