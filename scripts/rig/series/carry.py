"""Carry the series from the primary pin's release to another, by a real three-way rebase.

`git am` puts a hunk beside its target when a twin of it comes first in the file, and exits 0.
A rebase knows both releases and does not: so a lock is made from a rebase, never from an apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.series.pristine import BRANCH, PRISTINE_REF

_REBASE = (
    "-c",
    "core.fsync=none",
    "-c",
    "merge.conflictStyle=diff3",
    "rebase",
    "--quiet",
    "--merge",
    "--empty=keep",
    "--keep-empty",
    "--reapply-cherry-picks",
    "--no-autosquash",
    "--no-autostash",
    "--no-gpg-sign",
    "--no-verify",
    "--committer-date-is-author-date",
)


@dataclass(frozen=True)
class Carried:
    """A commit before and after the rebase."""

    source: str
    result: str


def carry(
    target: Git, source: Path, commits: Sequence[str], leave_out: Sequence[str] = ()
) -> list[Carried]:
    """Rebase commits onto the release in `target`, which becomes checked out there.

    Args:
        target: a repository made by `make_pristine`, at its release.
        source: the tree that holds `commits` and their release as `refs/rig/pristine`.
        commits: a line of commits on the source's release, oldest first.
        leave_out: commits of the line that the target does not carry.

    Raises:
        RigError: a commit conflicts; names it and shows the conflict.
    """
    if not commits:
        return []
    target.run("fetch", "--quiet", "--no-tags", source, f"+{PRISTINE_REF}:refs/rig/source-release")
    target.run("fetch", "--quiet", "--no-tags", source, f"+{commits[-1]}:refs/rig/source-tip")
    onto = target.line("rev-parse", PRISTINE_REF)
    kept = [c for c in commits if c not in leave_out]
    if len(kept) != len(commits):
        # Leave the others out on their own release first, so that they are no part of the rebase.
        target.run("checkout", "--quiet", "--detach", "refs/rig/source-release")
        for commit in kept:
            picked = target.run("cherry-pick", "--allow-empty", commit, check=False)
            if picked.code != 0:
                raise _conflict(target, commit, "it needs a patch that this pin skips")
    else:
        target.run("checkout", "--quiet", "--detach", "refs/rig/source-tip")
    done = target.run(*_REBASE, "--onto", onto, "refs/rig/source-release", check=False)
    if done.code != 0:
        stopped = target.run("rev-parse", "REBASE_HEAD", check=False).text.strip()
        raise _conflict(target, stopped, done.error_text)
    results = target.lines("rev-list", "--reverse", f"{onto}..HEAD")
    if len(results) != len(kept):
        raise RigError(
            f"the rebase gave {len(results)} commits of {len(kept)}", where=target.folder.name
        )
    target.run("checkout", "--quiet", "-B", BRANCH)
    return [Carried(s, r) for s, r in zip(kept, results, strict=True)]


def _conflict(git: Git, commit: str, said: str) -> RigError:
    subject = git.run("log", "-1", "--format=%s", commit, check=False).text.strip() or commit
    detail = git.run("diff", "--no-ext-diff", "--no-color", check=False).text
    return RigError(
        f"{subject!r} conflicts with this release",
        where=git.folder.name,
        detail=detail or said,
        next_step="resolve it by hand in that pin's tree: `git am` the patches that apply, commit "
        "the others there, `make refresh VLLM=<version>`; or skip the patch for the pin",
    )
