"""`rig clean`: remove what can be made again, and nothing that a person made."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from rig.errors import RigError, first_line_of_os_error
from rig.layout import Layout
from rig.pins import Flavour, read_pins
from rig.rebase.state import FOLDER
from rig.series.apply import edits_in

_MADE_ASIDE = ".saved-"


def clean(layout: Layout) -> list[str]:
    """Remove build/, dist/ and what lies outside for this checkout; says what went or stayed.

    Raises:
        RigError: another command works there, or something cannot be removed.
    """
    said = []
    # Listed before the locks: what begins after that is not touched, whatever its lock is.
    folders = [folder for folder in (layout.build, layout.dist) if folder.is_dir()]
    found = [path for folder in folders for path in sorted(folder.iterdir())]
    with ExitStack() as stack:
        for lock in locks_to_hold(layout):
            _hold(stack, lock, layout)
        trees = {layout.tree(p.version) for p in read_pins(layout)}
        # What a command that has just ended took away itself is not there any more.
        for path in (path for path in found if path.exists() or path.is_symlink()):
            if path.name.endswith(".lock"):  # held, by us
                continue
            edits = edits_in(path) if path in trees else []
            if _MADE_ASIDE in path.name:
                edits = ["an edited tree that was moved aside"]
            if path.name == FOLDER and (path / "state.json").exists():
                edits = ["a rebase in progress; `make rebase-abort` throws it away"]
            if edits:
                said.append(f"kept     {layout.shown(path)}: {edits[0]}")
            else:
                said.append(_remove(layout, path))
        if layout.outside.exists():
            said.append(_remove(layout, layout.outside))
    return said or ["nothing to remove"]


def locks_to_hold(layout: Layout) -> list[Path]:
    """Every lock that a command of ours may hold while it works in build/ or dist/."""
    # These are held also if they are not there yet: the command may begin at any moment.
    pins = read_pins(layout)
    hidden = ["verify", "refresh", "absence", "release", FOLDER]
    hidden += ["rebase-look", "bisect-pin", "forecast"]
    hidden += [f"{what}-{p.version}" for p in pins for what in ("vllm", "probes", "source")]
    locks = {layout.build / f".{name}.lock" for name in hidden}
    locks |= {layout.build / f"{name}.lock" for name in ("rehearsal", "docs-env")}
    locks |= {layout.build / f"engine-{p.version}-rehearsal.lock" for p in pins}
    engines = [f"engine-{p.version}-cpu.lock" for p in pins]
    locks |= {folder / name for folder in (layout.build, layout.outside) for name in engines}
    locks |= {layout.build / "image" / f"{p.version}-{f}.lock" for p in pins for f in Flavour}
    locks.add(layout.dist / ".lock")
    for folder in (layout.build, layout.outside):
        locks |= {*folder.glob("*.lock"), *folder.glob(".*.lock")}
    return sorted(locks)


def _hold(stack: ExitStack, lock: Path, layout: Layout) -> None:
    if not lock.parent.is_dir():
        return
    try:
        stack.enter_context(FileLock(lock, timeout=0))
    except Timeout as error:
        raise RigError(
            "another command works there",
            where=layout.shown(lock),
            next_step="wait for it, then run this again",
        ) from error
    except OSError as error:
        raise _cannot_remove(layout, lock, error) from error


def _remove(layout: Layout, path: Path) -> str:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise _cannot_remove(layout, path, error) from error
    return f"removed  {layout.shown(path)}"


def _cannot_remove(layout: Layout, path: Path, error: OSError) -> RigError:
    return RigError(
        f"cannot remove it: {first_line_of_os_error(error)}",
        where=layout.shown(path),
        next_step="see who owns it and who uses it (`lsof`), then run this again",
    )
