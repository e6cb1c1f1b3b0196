"""What an apply gave: read back from git, and compared with the lock object id by object id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rig.errors import RigError
from rig.git import Git
from rig.pins import Pin
from rig.series.listing import SeriesPatch
from rig.series.lock import ABSENT, Lock, LockedFile, LockedPatch
from rig.series.mail import PatchMail
from rig.series.pristine import PRISTINE_REF


@dataclass(frozen=True)
class AppliedPatch:
    """One patch as it was applied."""

    number: str
    name: str
    subject: str
    sha256: str


@dataclass(frozen=True)
class ChangedFile:
    """One path from the release to the applied series; a rename is a D and an A.

    Args:
        path: in the tree.
        status: added, modified or deleted.
        before: git blob id; None for an added file.
        after: git blob id; None for a deleted file.
        mode: git mode of the side that exists, the after side first.
    """

    path: str
    status: Literal["A", "M", "D"]
    before: str | None
    after: str | None
    mode: str


@dataclass(frozen=True)
class AppliedTree:
    """The applied series of one pin, proven against its lock.

    Args:
        folder: a git repository; `refs/rig/pristine` is the release, HEAD the series.
        pin: the release.
        final_tree: git tree id of HEAD.
        patches: in order.
        series_digest: see `listing.series_digest`.
        changed: every path that differs between the release and the series.
        was_there: nothing had to be done.
    """

    folder: Path
    pin: Pin
    final_tree: str
    patches: tuple[AppliedPatch, ...]
    series_digest: str
    changed: tuple[ChangedFile, ...]
    was_there: bool = False


def touched_files(git: Git, old: str, new: str) -> tuple[LockedFile, ...]:
    """Every path that differs between two commits, with blob ids and modes of both sides."""
    fields = git.null_separated(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-ext-diff", old, new
    )
    files = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        if not path.isprintable():  # surrogates of bytes that are not UTF-8 are not, either
            raise RigError(
                f"a lock cannot hold the file name {path!r}",
                where=git.folder.name,
                next_step="give the file a printable UTF-8 name",
            )
        mode_before, mode_after, before, after, _status = meta.lstrip(":").split()
        files.append(
            LockedFile(
                path=path,
                before=before,
                after=after,
                mode_before=mode_before,
                mode_after=mode_after,
            )
        )
    return tuple(files)


def commits_of_series(git: Git, tip: str = "HEAD") -> list[str]:
    """The commits after the release, oldest first."""
    return git.lines("rev-list", "--reverse", "--topo-order", f"{PRISTINE_REF}..{tip}")


def read_back(git: Git, version: str, series: str, mails: list[PatchMail]) -> Lock:
    """What git holds after an apply, in the form of a lock."""
    commits = commits_of_series(git)
    patches = []
    previous = PRISTINE_REF
    for mail, commit in zip(mails, commits, strict=True):
        patches.append(
            LockedPatch(
                name=mail.name,
                sha256=mail.sha256,
                tree=git.tree_id(commit),
                file=touched_files(git, previous, commit),
            )
        )
        previous = commit
    return Lock(
        version=version,
        pristine=git.tree_id(PRISTINE_REF),
        final=git.tree_id(),
        series=series,
        patch=tuple(patches),
    )


def prove(git: Git, found: Lock, lock: Lock, mails: list[PatchMail], where: str) -> None:
    """Compare what an apply gave with the lock.

    Raises:
        RigError: the first difference, with the patch, the file and both hunks.
    """
    renew = f"if you changed the series: `make refresh VLLM={lock.version}`, else restore the file"
    names = [p.name for p in found.patch]
    locked_names = [p.name for p in lock.patch]
    if names != locked_names:
        raise RigError(
            f"the series is {names or 'empty'}, the lock knows {locked_names or 'none'}",
            where=where,
            next_step=renew,
        )
    commits = commits_of_series(git)
    for got, locked, mail, commit in zip(found.patch, lock.patch, mails, commits, strict=True):
        _prove_files(git, got, locked, mail, commit, where)
        if got.tree != locked.tree:
            raise RigError(
                f"{got.name} gave tree {got.tree}, the lock says {locked.tree}",
                where=where,
                next_step=renew,
            )
        if got.sha256 != locked.sha256:
            raise RigError(
                f"the text of {got.name} is not the one that was locked, although it gives the "
                "same tree (its message or line numbers changed)",
                where=where,
                next_step=renew,
            )
    if found.final != lock.final or found.series != lock.series:
        raise RigError(
            f"tree {found.final} and series {found.series}, "
            f"the lock says {lock.final} and {lock.series}",
            where=where,
            next_step=renew,
        )


def _prove_files(
    git: Git, got: LockedPatch, locked: LockedPatch, mail: PatchMail, commit: str, where: str
) -> None:
    found = {f.path: f for f in got.file}
    wanted = {f.path: f for f in locked.file}
    for path in sorted(found.keys() | wanted.keys()):
        mine, theirs = found.get(path), wanted.get(path)
        if mine == theirs:
            continue
        written = _diff_of_file(mail.diff, path) or "(the patch does not name this file)\n"
        applied = git.run("show", "--format=", "--no-renames", commit, "--", path).text
        raise RigError(
            f"{got.name} does not do to {path} what the lock says",
            where=where,
            detail=(
                f"as written in the patch:\n{written}\n"
                f"as it was applied:\n{applied or '(it did not change this file)'}\n"
                f"lock:  {_side(theirs)}\nfound: {_side(mine)}"
            ),
            next_step=(
                "if only the line numbers differ, the hunk landed beside its target: the common "
                "text cannot serve this pin. If you changed the series: `make refresh`. Else "
                "restore the patch and the lock from git"
            ),
        )


def _side(file: LockedFile | None) -> str:
    if file is None:
        return "not touched"
    return f"{file.mode_before} {file.before} -> {file.mode_after} {file.after}"


def _diff_of_file(diff: bytes, path: str) -> str:
    """The part of a patch that is about one path."""
    parts = diff.split(b"\ndiff --git ")
    wanted = f"b/{path}".encode()
    for at, part in enumerate(parts):
        header = part.split(b"\n", 1)[0]
        if header.endswith((wanted, wanted + b'"')):
            prefix = "" if at == 0 else "diff --git "
            return prefix + part.decode("utf-8", "replace")
    return ""


def changed_files(git: Git, tip: str = "HEAD") -> tuple[ChangedFile, ...]:
    """Every path that differs between the release and the series."""
    changed = []
    for file in touched_files(git, PRISTINE_REF, tip):
        before = None if file.before == ABSENT else file.before
        after = None if file.after == ABSENT else file.after
        status = "A" if before is None else "D" if after is None else "M"
        mode = file.mode_before if after is None else file.mode_after
        changed.append(
            ChangedFile(file.path, cast(Literal["A", "M", "D"], status), before, after, mode)
        )
    return tuple(changed)


def applied_patches(read: list[tuple[SeriesPatch, PatchMail]]) -> tuple[AppliedPatch, ...]:
    """The patches of one pin in the form that a wheel's provenance needs."""
    return tuple(AppliedPatch(m.number, m.name, m.subject, m.sha256) for _, m in read)
