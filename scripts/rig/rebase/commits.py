"""The commits of a finished rebase in the checkout: pin, drops, resolutions, refresh."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rig.errors import RigError
from rig.git import Git, own_identity
from rig.layout import Layout
from rig.rebase.write import Files, Outcome
from rig.series.lock import replace_file

_PLAN = "commits.json"


@dataclass(frozen=True)
class PlannedCommit:
    """One commit: its message and the files of it, as paths below the checkout."""

    message: str
    paths: tuple[str, ...]


def plan_commits(
    layout: Layout, old: str, new: str, outcome: Outcome, dropped: Mapping[str, str]
) -> list[PlannedCommit]:
    """The commits in their order; those without a file are left out."""
    plan = [PlannedCommit(f"Pin vLLM {new}", _paths(layout, outcome.pin))]
    for number, files in sorted(outcome.drops.items()):
        message = f"Drop {number} from vLLM {new} on\n\n{dropped[number]}"
        plan.append(PlannedCommit(message, _paths(layout, files)))
    numbers = sorted({path.name[:4] for path in outcome.resolutions})
    message = f"Resolve {', '.join(numbers)} for vLLM {new}"
    plan.append(PlannedCommit(message, _paths(layout, outcome.resolutions)))
    message = f"Refresh the series: rebased from vLLM {old} to {new}"
    plan.append(PlannedCommit(message, _paths(layout, outcome.rest)))
    return [commit for commit in plan if commit.paths]


def _paths(layout: Layout, files: Files) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(layout.root).as_posix() for path in files))


def save_commits(folder: Path, plan: Sequence[PlannedCommit]) -> None:
    """Note the plan, for a run that goes on after this one was killed."""
    replace_file(folder / _PLAN, json.dumps([asdict(c) for c in plan], indent=1).encode())


def read_commits(folder: Path) -> list[PlannedCommit]:
    """The plan as noted."""
    raw = json.loads((folder / _PLAN).read_text("utf-8"))
    return [PlannedCommit(c["message"], tuple(c["paths"])) for c in raw]


def require_clean_patches(layout: Layout) -> None:
    """Refuse to carry texts of which git would not know the former state.

    Raises:
        RigError: patches/ holds work that is not committed.
    """
    if not is_repository(layout.root):
        return
    done = Git(layout.root).run("status", "--porcelain", "-z", "--", "patches")
    loose = [entry for entry in done.text.split("\0") if entry]
    if loose:
        raise RigError(
            "patches/ holds work that is not committed",
            where="\n         ".join(loose[:10]),
            next_step="commit it, or `git stash` it, and run the same command again",
        )


def make_commits(root: Path, plan: Sequence[PlannedCommit]) -> list[str]:
    """Make the commits that are not made yet; a line for each."""
    if not is_repository(root):
        return ["the checkout is no git repository: nothing was committed"]
    identity = own_identity(root)
    if identity is None:
        return ["git knows no user.name and user.email here: nothing was committed"]
    git = Git(root)
    said = []
    for commit in plan:
        git.run("add", "--all", "--force", "--", *_known(git, root, commit.paths))
        if git.run("diff", "--cached", "--quiet", "--", *commit.paths, check=False).code == 0:
            continue
        # Only these paths: what else a person has staged is not of this commit.
        git.run(
            "commit", "--quiet", "--no-verify", "--file=-", "--only", "--",
            *_known(git, root, commit.paths), stdin=commit.message.encode() + b"\n", env=identity,
        )  # fmt: skip
        said.append(f"committed: {commit.message.splitlines()[0]}")
    return said


def _known(git: Git, root: Path, paths: Sequence[str]) -> list[str]:
    """Those paths that are there, or that git knows: it refuses others."""
    listed = set(git.null_separated("ls-files", "-z", "--", *paths))
    return [path for path in paths if path in listed or (root / path).exists()]


def is_repository(root: Path) -> bool:
    """Whether the checkout itself is a git work tree, and not only a folder in one."""
    done = Git(root).run("rev-parse", "--show-toplevel", check=False)
    return done.code == 0 and Path(done.text.removesuffix("\n")).resolve() == root.resolve()
