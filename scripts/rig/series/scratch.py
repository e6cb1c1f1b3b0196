"""Locks and scratch folders under build/: one run at a time, and nothing left by a killed one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rig.errors import RigError, first_line_of_os_error
from rig.layout import Layout
from rig.waiting import hold

_PATIENCE_SECONDS = 10


@contextmanager
def held(layout: Layout, name: str, what: str) -> Iterator[None]:
    """Hold the lock `build/.<name>.lock`; others wait, and say for what.

    Raises:
        RigError: build/ cannot be written.
    """
    with ExitStack() as stack:
        try:
            layout.build.mkdir(parents=True, exist_ok=True)
            path = layout.build / f".{name}.lock"
            stack.enter_context(hold(path, f"waiting for another run that {what}"))
        except OSError as error:
            raise cannot_write(layout, error) from error
        yield


@contextmanager
def scratch_folder(layout: Layout, purpose: str) -> Iterator[Path]:
    """An empty folder under build/, for one run at a time of each purpose.

    Raises:
        RigError: an operating system error in the body, such as a full disk.
    """
    with held(layout, purpose, f"does `./rig {purpose}`"):
        folder = layout.build / f".{purpose}-scratch"
        discard(folder)
        try:
            folder.mkdir()
            yield folder
        except OSError as error:
            raise cannot_write(layout, error) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def discard(folder: Path) -> None:
    """Remove a folder that a killed run left.

    Its git may have outlived it and still write there for a moment: so the folder goes out of
    the way in one step first, and is removed until it stays away.
    """
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.trash-{os.getpid()}"))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for trash in folder.parent.glob(f"{folder.name}.trash-*"):
        shutil.rmtree(trash, ignore_errors=True)
        while trash.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
            shutil.rmtree(trash, ignore_errors=True)


def cannot_write(layout: Layout, error: OSError) -> RigError:
    """What to say when the operating system refuses a file of ours."""
    return RigError(
        f"cannot write: {first_line_of_os_error(error)}",
        where=error.filename or layout.build,
        next_step="about 400 MB are needed in build/; make room, or the right to write, and run "
        "the same command again",
    )
