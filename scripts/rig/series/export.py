"""Commits back to patch files, with bytes that depend on the commits alone.

The export runs in a bare repository of its own that borrows the tree's objects: the tree's
`.git/config`, `.git/info/attributes` and the `.gitattributes` of a work tree all change what
`git format-patch` writes, and none of them is read there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.series.applied import commits_of_series
from rig.series.mail import PatchMail, parse_mail
from rig.series.pristine import PRISTINE_REF

_FORMAT_PATCH = (
    "format-patch",
    "--stdout",
    "--zero-commit",
    "--no-signature",
    "--full-index",
    "--no-numbered",
    "--no-encode-email-headers",
    "--no-attach",
    "--no-thread",
    "--no-base",
    "--no-notes",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--subject-prefix=PATCH",
)
_SLUG_LENGTH = 56
_NUMBER = re.compile(r"^Rig-Number: *([0-9]{4})$", re.MULTILINE)


@dataclass(frozen=True)
class Exported:
    """One commit as a patch file."""

    commit: str
    mail: PatchMail

    @property
    def name(self) -> str:
        return self.mail.name


@contextmanager
def export_repository(tree: Path) -> Iterator[Git]:
    """A bare repository without any configuration that sees the objects of `tree`."""
    # In the tree's own .git, where a killed run's is found and removed by the next one.
    folder = tree / ".git" / "rig-export"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir()
        git = Git(folder)
        git.run("init", "--quiet", "--bare", "--template=")
        objects = folder / "objects" / "info"
        objects.mkdir(exist_ok=True)
        (objects / "alternates").write_bytes(
            os.fsencode(tree.resolve() / ".git" / "objects") + b"\n"
        )
        yield git
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def patch_bytes(git: Git, commit: str) -> bytes:
    """What `git format-patch` writes for one commit, in a repository of `export_repository`."""
    return git.run(*_FORMAT_PATCH, "-1", commit).stdout


def export_commits(tree: Path, tip: str = "HEAD") -> list[Exported]:
    """Every commit after the release as a checked patch, oldest first.

    Raises:
        RigError: a commit is a merge, changes nothing, or its message breaks a rule.
    """
    work = Git(tree)
    base = work.line("rev-parse", PRISTINE_REF)
    if work.run("merge-base", "--is-ancestor", base, tip, check=False).code != 0:
        raise RigError(
            "the commits do not stand on the untouched release",
            where=tree,
            next_step=f"rebase them onto {PRISTINE_REF}",
        )
    exported = []
    commits = commits_of_series(work, tip)
    with export_repository(tree) as git:
        for commit in commits:
            exported.append(_export_one(work, git, commit, tree))
    return exported


def names_of_commits(tree: Path) -> dict[str, str]:
    """Number -> patch file name of the commits after the release; those without one are left out.

    Only the log is read, so another run may work on the tree at the same time.
    """
    git = Git(tree)
    names = {}
    for commit in commits_of_series(git):
        subject, _, body = git.run("log", "-1", "--format=%s%x00%B", commit).text.partition("\0")
        if number := _NUMBER.search(body):
            names[number[1]] = f"{number[1]}-{_slug(subject)}.patch"
    return names


def _export_one(work: Git, git: Git, commit: str, tree: Path) -> Exported:
    subject = work.line("log", "-1", "--format=%s", commit)
    where = f"{tree.name}: commit {commit[:12]} {subject!r}"
    if len(work.line("log", "-1", "--format=%P", commit).split()) != 1:
        raise RigError(
            "a merge commit cannot be a patch", where=where, next_step="rebase it into one line"
        )
    if work.tree_id(commit) == work.tree_id(f"{commit}^"):
        raise RigError("the commit changes nothing", where=where, next_step="drop it")
    message = work.run("log", "-1", "--format=%B", commit).text
    number = _NUMBER.search(message)
    if number is None:
        raise RigError(
            "the commit does not say which number its patch has",
            where=where,
            next_step="git commit --amend --trailer 'Rig-Number: 0203' (docs/patches.md lists "
            "the trailers; the first two digits are the topic)",
        )
    raw = patch_bytes(git, commit)
    mail = parse_mail(f"{number[1]}-{_slug(subject)}.patch", raw, git, where)
    _require_same_in_a_mail(git, commit, mail, where)
    return Exported(commit, mail)


def _require_same_in_a_mail(git: Git, commit: str, mail: PatchMail, where: str) -> None:
    """The author and the subject that `git am` reads from the mail are the commit's own."""
    fields = ("Author", "Email", "Subject")
    told = git.run("mailinfo", "-b", os.devnull, os.devnull, stdin=mail.raw).text.splitlines()
    for field, own in zip(
        fields, git.lines("log", "-1", "--format=%an%n%ae%n%s", commit), strict=True
    ):
        if f"{field}: {own}" not in told:
            found = next((t for t in told if t.startswith(f"{field}: ")), "nothing")
            raise RigError(
                f"a mail cannot carry {field} {own!r}: git am would read {found!r}",
                where=where,
                next_step="reword the commit message, or `git commit --amend --author=...`",
            )


def _slug(subject: str) -> str:
    """A file name of a subject: `[Platform] Run on Ray` -> `platform-run-on-ray`."""
    words = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")
    if len(words) > _SLUG_LENGTH:
        words = words[: _SLUG_LENGTH + 1].rpartition("-")[0] or words[:_SLUG_LENGTH]
    return words or "patch"


def verbatim_patch_id(raw: bytes, git: Git) -> str:
    """`git patch-id --verbatim`: unlike --stable it does not forgive changed indentation."""
    out = git.run("patch-id", "--verbatim", stdin=raw).text.split()
    if not out:
        raise RigError("git finds no diff in the patch")
    return out[0]
