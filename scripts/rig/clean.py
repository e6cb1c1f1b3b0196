"""`rig clean`: remove what can be made again, and nothing that a person made."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from rig.errors import RigError, first_line_of_os_error
from rig.layout import Layout
from rig.pins import Flavour, read_pins
from rig.rebase.state import FOLDER
from rig.series.apply import edits_in

_MADE_ASIDE = ".saved-"
_GOING = ".removing-"


def clean(layout: Layout, tell: Callable[[str], None] = lambda line: None) -> list[str]:
    """Remove build/, dist/ and what lies outside for this checkout; says what went or stayed.

    Args:
        tell: is told each line as it becomes true: the removal of an engine takes a while.

    Raises:
        RigError: another command works there, or something cannot be removed.
    """
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        tell(line)

    # Listed before the locks: what begins after that is not touched, whatever its lock is.
    folders = [folder for folder in (layout.build, layout.dist) if folder.is_dir()]
    found = [path for folder in folders for path in sorted(folder.iterdir())]
    with ExitStack() as stack:
        for lock in locks_to_hold(layout):
            _hold(stack, lock, layout)
        # What a command that has just ended took away itself is not there any more.
        for path in (path for path in found if path.exists() or path.is_symlink()):
            if path.name.endswith(".lock"):  # held, by us
                continue
            reason = _why_kept(layout, path)
            if reason:
                say(f"kept     {layout.shown(path)}: {reason}")
            else:
                _remove(layout, path, aside=path.with_name(f"{_GOING}{path.name}"))
                say(f"removed  {layout.shown(path)}")
        if layout.outside.exists():
            _remove(layout, layout.outside)
            say(f"removed  {layout.shown(layout.outside)}")
    if not said:
        say("nothing to remove")
    return said


def _why_kept(layout: Layout, path: Path) -> str | None:
    """What a person may have made there, and how to be rid of it; None if nothing."""
    if path.name.startswith(_GOING):  # an earlier run was about to remove it
        return None
    by_hand = f"if you do not want it: rm -rf {shlex.quote(layout.shown(path))}"
    if _MADE_ASIDE in path.name:
        return f"an edited tree that was moved aside; {by_hand}"
    if path.name == FOLDER and (path / "state.json").exists():
        return "a rebase in progress; `make rebase-abort` throws it away"
    # Also a tree of no pin here, since another branch may have it; and one that an apply which
    # was killed had put out of its way.
    name = path.name.removeprefix(".old-")
    is_tree = path.parent == layout.build and name.startswith("vllm-")
    edits = edits_in(path) if is_tree else []
    return f"{edits[0]}; {by_hand}" if edits else None


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


def _remove(layout: Layout, path: Path, aside: Path | None = None) -> None:
    """Remove a file or a folder.

    Args:
        aside: a name that a folder takes first. A run that is stopped midway would leave half a
            tree otherwise, and the next one would take that for the work of a person.
    """
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink()
            return
        if aside and not path.name.startswith(_GOING):
            if aside.exists():
                shutil.rmtree(aside)
            path = path.rename(aside)
        shutil.rmtree(path)
    except OSError as error:
        raise _cannot_remove(layout, path, error) from error


def _cannot_remove(layout: Layout, path: Path, error: OSError) -> RigError:
    return RigError(
        f"cannot remove it: {first_line_of_os_error(error)}",
        where=layout.shown(path),
        next_step="see who owns it and who uses it (`lsof`), then run this again",
    )
