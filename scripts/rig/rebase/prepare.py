"""A repository that holds both releases, and the series on the old one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rig.console import console
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin
from rig.rebase.left_out import LeftOut, left_out_of
from rig.rebase.passage import FROM_REF, SERIES_REF
from rig.rebase.state import tree_of
from rig.series.apply import make_tree
from rig.series.listing import read_mails
from rig.series.lock import read_lock
from rig.series.mail import PatchMail
from rig.series.pristine import PRISTINE_REF, make_pristine
from rig.series.scratch import discard


@dataclass(frozen=True)
class Ground:
    """Both releases in one repository.

    Args:
        git: its work tree is overwritten by each run; PRISTINE_REF is the new release.
        commits: the series on the old release, oldest first.
        mails: the patches of these commits.
        name: what the new tree is called, e.g. "vLLM 0.34.0".
        left_out: the patches that the old pin skips.
    """

    git: Git
    commits: list[str]
    mails: list[PatchMail]
    name: str
    left_out: list[LeftOut]

    @property
    def onto(self) -> str:
        """The commit of the new release."""
        return self.git.line("rev-parse", PRISTINE_REF)


def ground_of_pins(
    layout: Layout, old: Pin, new: Pin, folder: Path, expected_tree: str | None
) -> Ground:
    """Both pins' releases in a new repository in `folder`.

    Args:
        layout: the checkout.
        old: the pin whose texts are carried, applied and proven beside; build/ is not looked at.
        new: the pin to carry to.
        folder: a path that does not exist yet.
        expected_tree: the tree id of the new release, if a lock gives it.

    Raises:
        RigError: the old pin does not apply as its lock says, or a release cannot be had.
    """
    git = make_pristine(layout, new, folder, expected_tree)
    return add_series(layout, old, git, f"vLLM {new.version}")


def ground_in_progress(layout: Layout, old: Pin, new: Pin) -> Ground:
    """Both releases in `build/rebase/tree/`, made once, and anew if the series is another one now.

    Raises:
        RigError: see `ground_of_pins`.
    """
    tree = tree_of(layout)
    lock = read_lock(layout, old.version)
    made_of = f"{lock.series} {lock.final} {new.sdist.sha256}\n"
    note = tree / ".git" / "rig-made-of"
    if tree.exists() and not (note.is_file() and note.read_text("utf-8") == made_of):
        console.print("the series or the pin changed meanwhile: the tree is made anew")
        discard(tree)
    if not tree.exists():
        making = tree.with_name("making")
        discard(making)  # of a run that was killed; its git may still write there
        making.mkdir(parents=True)
        ground_of_pins(layout, old, new, making / "tree", None)
        (making / "tree" / ".git" / note.name).write_text(made_of, "utf-8")
        (making / "tree").rename(tree)
        shutil.rmtree(making)
    return reopen(layout, old, Git(tree), f"vLLM {new.version}")


def add_series(layout: Layout, old: Pin, git: Git, name: str) -> Ground:
    """Fetch a pin's release and series into a repository that holds a new tree."""
    applied = git.folder.with_name(f"{git.folder.name}.from")
    try:
        make_tree(layout, old, applied, read_lock(layout, old.version))
        git.run(
            "fetch", "--quiet", "--no-tags", "--force", applied,
            f"+{PRISTINE_REF}:{FROM_REF}", f"+HEAD:{SERIES_REF}",
        )  # fmt: skip
    finally:
        shutil.rmtree(applied, ignore_errors=True)
    return reopen(layout, old, git, name)


def reopen(layout: Layout, old: Pin, git: Git, name: str) -> Ground:
    """The ground in a repository that has everything already."""
    for lock in (git.folder / ".git").rglob("*.lock"):
        lock.unlink()  # of a git that was killed: only one run at a time works here
    commits = git.lines("rev-list", "--reverse", "--topo-order", f"{FROM_REF}..{SERIES_REF}")
    mails = [mail for _, mail in read_mails(layout, old)]
    return Ground(git, commits, mails, name, left_out_of(layout, old))
