"""The point of history that a release is made of: one commit, one revision, one tag.

A release is the tag `v<primary vLLM>+rig.<revision>`. The revision is counted on over all vLLM
releases and never used again, since it names the wheels of the secondary pins too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import primary_pin
from rig.revision import read_revision

_TAG = re.compile(r"v(?P<vllm>[0-9][0-9a-z.]*)\+rig\.(?P<revision>[1-9][0-9]*)")


@dataclass(frozen=True)
class ReleaseTag:
    """A release that was made: its tag and the commit that it names."""

    name: str
    revision: int
    commit: str


@dataclass(frozen=True)
class Point:
    """What a release is made of.

    Args:
        version: `0.33.0+rig.4`.
        commit: of the checkout; tree is its git tree id.
        seconds: the commit's date in seconds since 1970: the only date in a release.
        tagged: the tag is there already, at this commit.
        previous: the release before it among the commit's ancestors; None for the first one.
    """

    version: str
    revision: int
    commit: str
    tree: str
    seconds: int
    tagged: bool
    previous: ReleaseTag | None

    @property
    def tag(self) -> str:
        return f"v{self.version}"


def release_point(layout: Layout) -> Point:
    """Read where the checkout stands.

    Raises:
        RigError: it is no full git history, holds what is not committed, its tag is that of other
            content, or its revision was used before.
    """
    git = Git(layout.root)
    _require_history(git)
    _require_clean(git)
    revision = read_revision(layout)
    version = f"{primary_pin(layout).version}+rig.{revision}"
    commit, tree, seconds = git.line("log", "-1", "--format=%H %T %ct").split()
    tags = _release_tags(git)
    own = next((t for t in tags if t.name == f"v{version}"), None)
    if own is None:
        _require_unused(tags, revision)
    else:
        # A release is made again after later ones too: only its own number must be no other's.
        _require_unused([t for t in tags if t != own and t.revision == revision], revision)
        if own.commit != commit:
            _refuse_tag(git, own, tree)
    earlier = [t for t in tags if t.revision < revision]
    before = [t for t in earlier if _is_ancestor(git, t.commit, commit)]
    previous = max(before, key=lambda t: t.revision, default=None)
    return Point(version, revision, commit, tree, int(seconds), own is not None, previous)


def _require_history(git: Git) -> None:
    if git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False).code != 0:
        raise RigError(
            "this is no git checkout with a commit: a release is made of one",
            where=git.folder,
            next_step="git clone the project, and run it there",
        )
    if git.line("rev-parse", "--is-shallow-repository") == "true":
        raise RigError(
            "this clone is shallow: what changed since the last release cannot be seen",
            where=git.folder,
            next_step="git fetch --unshallow --tags",
        )


def _require_clean(git: Git) -> None:
    status = git.null_separated(
        "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"
    )
    # Files of which git was told not to look (assume-unchanged, skip-worktree).
    flags = git.null_separated("ls-files", "-v", "-z")
    found = status + [f"hidden from git: {f[2:]}" for f in flags if f[0] == "S" or f[0].islower()]
    if found:
        raise RigError(
            "the checkout holds what is not committed",
            where="\n         ".join(found[:12])
            + (f"\n         and {len(found) - 12} more" if len(found) > 12 else ""),
            next_step="commit it, or put it away: a release is made of a commit and nothing else",
        )


def _release_tags(git: Git) -> list[ReleaseTag]:
    tags = []
    for name in git.lines("tag", "--list", "v*+rig.*"):
        found = _TAG.fullmatch(name)
        if found:
            commit = git.line("rev-parse", "--verify", f"refs/tags/{name}^{{commit}}")
            tags.append(ReleaseTag(name, int(found["revision"]), commit))
    return tags


def _require_unused(tags: list[ReleaseTag], revision: int) -> None:
    last = max(tags, key=lambda t: t.revision, default=None)
    if last is not None and last.revision >= revision:
        raise RigError(
            f"revision {revision} was used: {last.name} is released, and its wheels are out",
            where="patches/revision",
            next_step=f"write {last.revision + 1} there and commit it. Revisions count on over "
            "all vLLM releases",
        )


def _refuse_tag(git: Git, own: ReleaseTag, tree: str) -> None:
    if git.tree_id(own.commit) != tree:
        raise RigError(
            f"the tag {own.name} is that of other content",
            where=f"tag: {own.commit[:12]}",
            next_step=f"write {own.revision + 1} into patches/revision and commit it: a released "
            "version never changes. To build the old one again: git checkout the tag",
        )
    raise RigError(
        f"the tag {own.name} is at another commit with the same content",
        where=f"tag: {own.commit[:12]}",
        next_step=f"git checkout {own.name}: the provenance names the commit",
    )


def _is_ancestor(git: Git, older: str, newer: str) -> bool:
    return git.run("merge-base", "--is-ancestor", older, newer, check=False).code == 0
