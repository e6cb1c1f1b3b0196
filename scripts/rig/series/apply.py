"""`rig apply`: the applied tree of one pin under build/, made anew or found to be right.

A tree is made in a temporary folder beside its place and renamed when it is proven: a run that
is killed leaves nothing half-done, only a temporary folder that the next run removes.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin
from rig.series.applied import (
    AppliedTree,
    applied_patches,
    changed_files,
    commits_of_series,
    prove,
    read_back,
)
from rig.series.listing import read_mails, series_digest
from rig.series.lock import Lock, read_lock
from rig.series.mailbox_apply import apply_mails
from rig.series.pristine import PRISTINE_REF, make_pristine, require_commit
from rig.series.scratch import cannot_write, discard, held

_STAMP = "rig-stamp.json"
# Caches that tools leave behind: nothing that a person wrote.
_CACHES = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".venv")


@dataclass(frozen=True)
class Stamp:
    """What an apply left in `.git/`, to know its own tree again."""

    version: str
    series: str
    head: str
    final: str


@contextmanager
def locked(layout: Layout, version: str) -> Iterator[None]:
    """Keep other runs away from one pin's tree; they wait, and say so."""
    with held(layout, f"vllm-{version}", f"works on vLLM {version}"):
        try:
            yield
        except OSError as error:
            raise cannot_write(layout, error) from error


def apply(layout: Layout, pin: Pin, *, discard: bool = False) -> AppliedTree:
    """The applied tree of one pin, proven against its lock.

    Args:
        layout: the checkout.
        pin: the release.
        discard: a tree with edits may be replaced; it is moved aside, not deleted.

    Raises:
        RigError: a patch does not apply, anything differs from the lock, or the tree that is
            there holds edits and `discard` is not set.
    """
    lock = read_lock(layout, pin.version)
    with locked(layout, pin.version):
        clear_leftovers(layout, pin.version)
        tree = layout.tree(pin.version)
        edits = edits_in(tree) if tree.exists() else []
        if edits and not discard:
            raise RigError(
                f"{layout.shown(tree)} holds work that is not in patches/",
                where="\n         ".join(edits[:12])
                + (f"\n         and {len(edits) - 12} more" if len(edits) > 12 else ""),
                next_step=f"`make refresh VLLM={pin.version}` exports commits to patches/; "
                f"`./rig apply {pin.version} --discard` moves the tree aside and starts anew",
            )
        if not edits and tree.exists() and _is_current(layout, pin, tree, lock):
            return _describe(layout, pin, tree, was_there=True)
        fresh = layout.build / f".new-vllm-{pin.version}"
        try:
            make_tree(layout, pin, fresh, lock)
            _put_in_place(layout, tree, fresh, keep=bool(edits))
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return _describe(layout, pin, tree)


def clear_leftovers(layout: Layout, version: str) -> None:
    """Remove what a killed run left; only temporary folders of this pin, under its lock."""
    for name in (f".new-vllm-{version}", f".new-vllm-{version}.unpack", f".trash-vllm-{version}"):
        discard(layout.build / name)
    replaced = layout.build / f".old-vllm-{version}"
    if replaced.exists():
        _drop_or_keep(layout, replaced, version)


def uncommitted_in(tree: Path) -> list[str]:
    """Changed, new and ignored files of an applied tree; the caches of tools do not count."""
    status = Git(tree).run(
        "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all",
        "--ignored=matching", check=False,
    )  # fmt: skip
    if status.code != 0:
        return [f"its git repository is damaged: {' '.join(status.error_text.splitlines()[:1])}"]
    # Files of which git was told not to look (assume-unchanged, skip-worktree): nor can we.
    flags = Git(tree).null_separated("ls-files", "-v", "-z")
    hidden = [
        f"git is told to ignore changes of {f[2:]}" for f in flags if f[0] == "S" or f[0].islower()
    ]
    return hidden + [
        entry
        for entry in status.text.split("\0")
        if entry and not any(part in _CACHES for part in Path(entry[3:]).parts)
    ]


def edits_in(tree: Path) -> list[str]:
    """What a person did to an applied tree; empty when throwing it away loses nothing."""
    stamp = read_stamp(tree)
    if stamp is None:
        return [f"{tree.name} was not made by `./rig apply`"]
    edits = uncommitted_in(tree)
    git = Git(tree)
    known = set(git.run("rev-list", stamp.head, check=False).text.split())
    refs = git.run("for-each-ref", "--format=%(objectname) %(refname)", check=False).text
    head = git.run("rev-parse", "HEAD", check=False).text.strip()
    for line in [f"{head} HEAD", *refs.splitlines()]:
        commit, _, ref = line.partition(" ")
        if commit not in known:
            edits.append(f"{ref} is {commit[:12]}, which is not part of the series")
    return edits


def read_stamp(tree: Path) -> Stamp | None:
    """The stamp of an applied tree; None when it has none or a damaged one."""
    try:
        return Stamp(**json.loads((tree / ".git" / _STAMP).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(tree: Path, stamp: Stamp) -> None:
    """Leave a stamp in an applied tree, in one step."""
    path = tree / ".git" / _STAMP
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(stamp), indent=2) + "\n", "utf-8")
    temporary.replace(path)


def _is_current(layout: Layout, pin: Pin, tree: Path, lock: Lock) -> bool:
    """Whether a tree without edits is what an apply would give now."""
    stamp = read_stamp(tree)
    if stamp is None or stamp.series != series_digest(layout, pin) or stamp.final != lock.final:
        return False
    git = Git(tree)
    read = read_mails(layout, pin)
    found = git.run("rev-parse", f"{PRISTINE_REF}^{{tree}}", "HEAD^{tree}", check=False)
    if found.text.split() != [lock.pristine, lock.final]:
        return False
    if len(commits_of_series(git)) != len(read):
        return False
    mails = [m for _, m in read]
    require_commit(git, pin)
    try:
        back = read_back(git, pin.version, stamp.series, mails)
    except RigError:  # git cannot read its own objects; there are no edits to lose
        return False
    prove(git, back, lock, mails, layout.shown(layout.lock(pin.version)))
    return True


def make_tree(layout: Layout, pin: Pin, folder: Path, lock: Lock) -> None:
    """Make the applied tree of a pin in a folder that does not exist yet, proven by its lock."""
    started = time.monotonic()
    read = read_mails(layout, pin)
    mails = [m for _, m in read]
    git = make_pristine(layout, pin, folder, lock.pristine)
    console.print(f"vLLM {pin.version}: release unpacked, tree {lock.pristine[:12]}")
    apply_mails(git, mails, f"vLLM {pin.version}")
    digest = series_digest(layout, pin)
    found = read_back(git, pin.version, digest, mails)
    prove(git, found, lock, mails, layout.shown(layout.lock(pin.version)))
    head = git.line("rev-parse", "HEAD")
    write_stamp(folder, Stamp(pin.version, digest, head, found.final))
    for patch in found.patch:
        console.print(f"  {patch.name}  tree {patch.tree[:12]}, {len(patch.file)} files proven")
    console.print(
        f"vLLM {pin.version}: {len(mails)} patches, tree {found.final[:12]} equals the lock's, "
        f"{time.monotonic() - started:.1f} s"
    )


def start_unproven(layout: Layout, pin: Pin) -> None:
    """Make a tree without a lock, for a refresh that will write one from it.

    The caller holds the pin's lock, and there is no tree yet.
    """
    fresh = layout.build / f".new-vllm-{pin.version}"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        mails = [m for _, m in read_mails(layout, pin)]
        git = make_pristine(layout, pin, fresh, None)
        apply_mails(git, mails, f"vLLM {pin.version}")
        head = git.line("rev-parse", "HEAD")
        write_stamp(fresh, Stamp(pin.version, series_digest(layout, pin), head, git.tree_id()))
        fresh.rename(layout.tree(pin.version))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put_in_place(layout: Layout, tree: Path, fresh: Path, *, keep: bool) -> None:
    if tree.exists():
        version = tree.name.removeprefix("vllm-")
        old = layout.build / f".old-{tree.name}"
        if keep:
            _move_aside(layout, tree, version)
        else:
            tree.rename(old)
        fresh.rename(tree)
        if not keep:
            _drop_or_keep(layout, old, version)
    else:
        fresh.rename(tree)


def _drop_or_keep(layout: Layout, old: Path, version: str) -> None:
    """Delete a replaced tree, unless somebody edited it in the meantime."""
    if edits_in(old):
        _move_aside(layout, old, version)
    else:
        # Renamed first: a half-deleted tree must not look like one with edits to a later run.
        trash = layout.build / f".trash-vllm-{version}"
        old.rename(trash)
        shutil.rmtree(trash)


def _move_aside(layout: Layout, tree: Path, version: str) -> None:
    stem = f"vllm-{version}.saved-{time.strftime('%Y%m%d-%H%M%S')}"
    saved, at = layout.build / stem, 2
    while saved.exists():
        saved, at = layout.build / f"{stem}-{at}", at + 1
    tree.rename(saved)
    console.print(f"your edited tree is kept as {layout.shown(saved)}")


def _describe(layout: Layout, pin: Pin, tree: Path, *, was_there: bool = False) -> AppliedTree:
    git = Git(tree)
    return AppliedTree(
        folder=tree,
        pin=pin,
        final_tree=git.tree_id(),
        patches=applied_patches(read_mails(layout, pin)),
        series_digest=series_digest(layout, pin),
        changed=changed_files(git),
        was_there=was_there,
    )
