"""What a rebase in progress knows, in build/rebase/: enough to do all of it again.

    state.json        from, to, what a person decided, where it stopped
    pin.toml          the pin of the new release, until it is written to patches/pins/
    resolved/         a person's text for each conflict, as patch files
    tree/             both releases in one repository; at a conflict, the tree to resolve it in
    report.{md,json}  the last verdicts
    outbox/           what is being written to patches/

A run never needs what an earlier one left in `tree/`: with the same decisions and texts it comes
to the same result. So a run may be killed at any moment.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.series.lock import replace_file
from rig.series.mail import PatchMail, read_mail
from rig.series.scratch import cannot_write, discard, held

FOLDER = "rebase"


class RebaseState(BaseModel):
    """One rebase.

    Args:
        old, new: the releases.
        drop: patch number -> why a person drops it.
        accept: patches whose failed probes a person has looked at.
        edit: patches that a person edits although git can merge them.
        stopped_at: the patch that lies in `tree/` for a person: its conflict, or to be edited.
    """

    model_config = ConfigDict(extra="forbid")

    old: str
    new: str
    drop: dict[str, str] = {}
    accept: set[str] = set()
    edit: set[str] = set()
    stopped_at: str | None = None


def folder_of(layout: Layout) -> Path:
    """Where a rebase keeps everything of it."""
    return layout.build / FOLDER


def tree_of(layout: Layout) -> Path:
    """The repository with both releases, and the place to resolve a conflict."""
    return folder_of(layout) / "tree"


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """Keep other rebases away; they wait, and say so."""
    with held(layout, FOLDER, "does `./rig rebase`"):
        try:
            yield
        except OSError as error:
            raise cannot_write(layout, error) from error


@contextmanager
def working_in_tree(layout: Layout) -> Iterator[None]:
    """Note that a run works in `tree/`: if it is killed, its git may go on there for a moment."""
    note = folder_of(layout) / "busy"
    note.parent.mkdir(parents=True, exist_ok=True)
    if note.exists():
        discard(tree_of(layout))
    note.touch()
    try:
        yield
    finally:  # also after an error: git has ended then
        note.unlink(missing_ok=True)


def read_state(layout: Layout) -> RebaseState | None:
    """The rebase in progress, if there is one.

    Raises:
        RigError: its state cannot be read.
    """
    path = folder_of(layout) / "state.json"
    if not path.exists():
        return None
    try:
        return RebaseState.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise RigError(
            f"the state of the rebase cannot be read: {error}",
            where=layout.shown(path),
            next_step="`make rebase-abort` throws the rebase away; patches/ is as it was",
        ) from error


def write_state(layout: Layout, state: RebaseState) -> None:
    """Note the state in one step."""
    path = folder_of(layout) / "state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, state.model_dump_json(indent=1).encode())


def forget(layout: Layout) -> None:
    """Remove everything of the rebase."""
    folder = folder_of(layout)
    if folder.exists():
        # The state first: without it, whatever else is left means nothing.
        (folder / "state.json").unlink(missing_ok=True)
        discard(folder)
        shutil.rmtree(folder, ignore_errors=True)


def read_resolutions(layout: Layout) -> dict[str, PatchMail]:
    """Patch number -> the text with which a person answered its conflict."""
    folder = folder_of(layout) / "resolved"
    paths = sorted(folder.glob("*.patch")) if folder.is_dir() else []
    return {p.name[:4]: read_mail(p, Git(layout.patches)) for p in paths}


def write_resolution(layout: Layout, mail: PatchMail) -> None:
    """Keep a person's text, in the place of an earlier one for the same patch."""
    remove_resolution(layout, mail.number, but=mail.name)
    replace_file(folder_of(layout) / "resolved" / mail.name, mail.raw)


def remove_resolution(layout: Layout, number: str, but: str = "") -> bool:
    """Forget the text for a patch; says whether there was one."""
    folder = folder_of(layout) / "resolved"
    found = [p for p in folder.glob(f"{number}-*.patch") if p.name != but]
    for path in found:
        path.unlink()
    return bool(found)
