"""Carry the series from the primary pin's release to another, by three-way merges.

`git am` puts a hunk beside its target when a twin of it comes first in the file, and exits 0.
A cherry-pick knows both releases and does not: so a lock is made from one, never from an apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.series.applied import commits_of_series
from rig.series.mail import PatchMail
from rig.series.mailbox_apply import apply_mails
from rig.series.pristine import PRISTINE_REF

# Empty results are kept: the export refuses them by name, and a person says why they are so.
_PICK = (
    "-c",
    "core.fsync=none",
    "-c",
    "merge.conflictStyle=diff3",
    "cherry-pick",
    "--allow-empty",
    "--keep-redundant-commits",
    "--no-gpg-sign",
)


@dataclass(frozen=True)
class Step:
    """One patch on its way to another release.

    Args:
        commit: what to carry, in the source's repository.
        by_hand: the text that a person made for the target; it is applied instead.
    """

    commit: str
    by_hand: PatchMail | None = None


def carry(target: Git, source: Path, steps: Sequence[Step]) -> list[str]:
    """Carry commits onto the release in `target`; returns the resulting commits, in order.

    Args:
        target: a repository made by `make_pristine`, at its release.
        source: the tree that holds the commits, on its own release.
        steps: oldest first.

    Raises:
        RigError: a commit conflicts, or a text made by hand does not apply; names it.
    """
    if not steps:
        return []
    refs = [f"+{s.commit}:refs/rig/source/{at}" for at, s in enumerate(steps)]
    target.run("fetch", "--quiet", "--no-tags", source, f"+{PRISTINE_REF}:refs/rig/source/release")
    target.run("fetch", "--quiet", "--no-tags", source, *refs)
    for by_hand, group in groupby(steps, key=lambda s: s.by_hand is not None):
        run = list(group)
        if by_hand:
            apply_mails(target, [s.by_hand for s in run if s.by_hand], target.folder.name)
            continue
        done = target.run(*_PICK, *(s.commit for s in run), check=False)
        if done.code != 0:
            raise _conflict(target, done.error_text)
    results = commits_of_series(target)
    if len(results) != len(steps):
        raise RigError(
            f"{len(steps)} commits were carried, {len(results)} came out", where=target.folder.name
        )
    _require_effect(target, steps, results)
    return results


def _require_effect(target: Git, steps: Sequence[Step], results: Sequence[str]) -> None:
    trees = [target.tree_id(c) for c in (PRISTINE_REF, *results)]
    for step, before, after in zip(steps, trees, trees[1:], strict=False):
        if before == after:
            subject = target.line("log", "-1", "--format=%s", step.commit)
            version = target.folder.name.removeprefix("vllm-")
            raise RigError(
                f"{subject!r} changes nothing on vLLM {version}, which has it already",
                where=f"patches/pins/{version}.toml",
                next_step="let that pin skip it, with this reason, in its [skip] table",
            )


def _conflict(git: Git, said: str) -> RigError:
    stopped = git.run("log", "-1", "--format=%s", "CHERRY_PICK_HEAD", check=False)
    subject = stopped.text.strip() or "a commit"
    detail = git.run("diff", "--no-ext-diff", "--no-color", check=False).text
    version = git.folder.name.removeprefix("vllm-")
    return RigError(
        f"{subject!r} conflicts with vLLM {version}",
        where=git.folder.name,
        detail=detail or said,
        next_step=f"make it by hand for that pin first: `./rig apply {version}`, commit it or "
        f"change its commit in build/vllm-{version}, `make refresh VLLM={version}`, then this "
        "again; or let the pin skip it",
    )
