"""One run of `git rebase` over the whole series, which no conflict stops.

Both releases lie in one repository, so git merges three ways: never the old text onto the new
tree, which may put a hunk beside its target and say nothing. A commit that conflicts is answered
by a person's resolution, if there is one, or noted and skipped, so that all patches are judged in
one run. Nothing of a run is needed afterwards: with the same resolutions it gives the same again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rig.errors import RigError
from rig.git import Git, advice
from rig.series.mail import PatchMail

FROM_REF = "refs/rig/from"  # the release that the series stands on
SERIES_REF = "refs/rig/series"  # its last commit
_NUMBER = re.compile(r"^Rig-Number: *([0-9]{4})$", re.MULTILINE)
_SETTINGS = (
    *("-c", "core.fsync=none", "-c", "core.abbrev=40"),
    *("-c", "merge.conflictStyle=diff3", "-c", "rebase.missingCommitsCheck=ignore"),
)
_REBASE = (
    "rebase",
    "--empty=drop",
    "--reapply-cherry-picks",
    "--no-autosquash",
    "--no-autostash",
    "--no-rebase-merges",
    "--no-gpg-sign",
    "--committer-date-is-author-date",
)
_MOST_OF_A_FILE = 4000  # characters of one file's conflict that a report holds


class End(StrEnum):
    """What `git rebase` made of one commit."""

    PICKED = "picked"
    EMPTY = "empty"
    CONFLICT = "conflict"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class ConflictFile:
    """One file that git could not merge.

    Args:
        path: in the tree.
        stages: which of base (1), the new release (2) and the patch (3) have it.
        text: the conflict as git shows it: the three sides, with markers.
    """

    path: str
    stages: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Passage:
    """One patch before and after.

    Args:
        number: of the patch.
        commit: on the old release.
        result: on the new one; None when it conflicts or became empty.
        end: how it ended.
        conflicts: the files in conflict, also when a resolution answered them.
    """

    number: str
    commit: str
    result: str | None
    end: End
    conflicts: tuple[ConflictFile, ...] = ()


def number_of(git: Git, commit: str) -> str:
    """The patch number that a commit's message names.

    Raises:
        RigError: it names none.
    """
    found = _NUMBER.search(git.run("log", "-1", "--format=%B", commit).text)
    if found is None:
        raise RigError("the commit names no Rig-Number", where=f"{git.folder.name}: {commit[:12]}")
    return found[1]


def numbers_of(git: Git, commits: Sequence[str]) -> dict[str, str]:
    """Commit -> patch number, read in one process."""
    if not commits:
        return {}
    text = git.run(
        "log", "--no-walk=unsorted", "--format=%H%x00%B%x01", "--stdin",
        stdin="\n".join(commits).encode() + b"\n",
    ).text  # fmt: skip
    found = {}
    for entry in text.split("\x01"):
        commit, _, message = entry.strip().partition("\0")
        if match := _NUMBER.search(message):
            found[commit] = match[1]
    missing = [commit for commit in commits if commit not in found]
    if missing:
        number_of(git, missing[0])
    return found


def carry_over(
    git: Git,
    onto: str,
    commits: Sequence[str],
    resolutions: Mapping[str, PatchMail],
    *,
    leave_out: Collection[str] = (),
    edit: Collection[str] = (),
    stop_at: str | None = None,
) -> list[Passage]:
    """Rebase the series onto a release; HEAD is the result afterwards.

    Args:
        git: a repository that holds both; its work tree is overwritten.
        onto: the new release.
        commits: the series on FROM_REF, oldest first; SERIES_REF is the last one.
        resolutions: patch number -> the text that answers its conflict.
        leave_out: numbers of patches that are not carried; they get no passage.
        edit: numbers of patches whose resolution is taken also where git can merge.
        stop_at: leave the work tree with the conflict of this patch, for a person; or, if it is
            one to edit, with its commit made.

    Raises:
        RigError: git failed for another reason than a conflict, or a resolution does not apply.
    """
    numbers = numbers_of(git, commits)
    out = [c for c in commits if numbers[c] in leave_out]
    commits = [c for c in commits if numbers[c] not in leave_out]
    abandon(git)
    git.run("checkout", "--quiet", "--force", "--detach", onto)
    git.run("clean", "-qffdx")
    ends: dict[str, End] = {}
    conflicts: dict[str, tuple[ConflictFile, ...]] = {}
    if commits:
        # The list of what to pick is edited by git's own means; the ids are hex, in full.
        edits = [f"-e '/^pick {commit}/d'" for commit in out]
        edits += [f"-e 's/^pick {c}/edit {c}/'" for c in commits if numbers[c] in edit]
        env = {"GIT_SEQUENCE_EDITOR": " ".join(["sed -i", *edits])} if edits else {}
        how = ("--interactive",) if edits else ("--quiet",)
        step: tuple[str, ...] = (*_REBASE, *how, "--onto", onto, FROM_REF, SERIES_REF)
        while (done := git.run(*_SETTINGS, *step, env=env, check=False)).code or is_under_way(git):
            stopped = git.run("rev-parse", "--verify", "--quiet", "REBASE_HEAD", check=False)
            commit = stopped.text.strip()
            if done.code == 0 and commit in numbers:  # stopped to edit
                number = numbers[commit]
                # Git stops also where it dropped a commit that became empty.
                if _number_at_head(git) == number:
                    if number == stop_at:
                        return _passages(git, onto, commits, numbers, ends, conflicts, upto=number)
                    if number in resolutions:
                        git.run("reset", "--quiet", "--hard", "HEAD^")
                        _answer(git, commit, resolutions[number])
                        ends[number] = End.RESOLVED
                step = ("rebase", "--continue")
                continue
            if commit not in numbers or not _unmerged(git):
                raise RigError(
                    "git rebase failed, and not at a conflict",
                    where=git.folder,
                    detail=done.error_text or done.text,
                    next_step=advice(done.error_text),
                )
            number = numbers[commit]
            conflicts[number] = read_conflicts(git)
            if number == stop_at:
                return _passages(git, onto, commits, numbers, ends, conflicts, upto=number)
            if number in resolutions:
                _answer(git, commit, resolutions[number])
                ends[number] = End.RESOLVED
                step = ("rebase", "--continue")
            else:
                ends[number] = End.CONFLICT
                step = ("rebase", "--skip")
    return _passages(git, onto, commits, numbers, ends, conflicts)


def abandon(git: Git) -> None:
    """End a rebase that was left in the middle, whatever state it is in."""
    if any((git.folder / ".git" / name).exists() for name in ("rebase-merge", "rebase-apply")):
        git.run("rebase", "--quit", check=False)
        git.run("reset", "--quiet", "--hard", check=False)


def is_under_way(git: Git) -> bool:
    """Whether `git rebase` has stopped and waits."""
    return (git.folder / ".git" / "rebase-merge").is_dir()


def _number_at_head(git: Git) -> str | None:
    found = _NUMBER.search(git.run("log", "-1", "--format=%B").text)
    return found and found[1]


def _passages(
    git: Git,
    onto: str,
    commits: Sequence[str],
    numbers: Mapping[str, str],
    ends: Mapping[str, End],
    conflicts: Mapping[str, tuple[ConflictFile, ...]],
    upto: str | None = None,
) -> list[Passage]:
    results = git.lines("rev-list", "--reverse", "--topo-order", f"{onto}..HEAD")
    result_of = {number: commit for commit, number in numbers_of(git, results).items()}
    found = []
    for commit in commits:
        number = numbers[commit]
        if number == upto:
            found.append(Passage(number, commit, None, End.CONFLICT, conflicts.get(number, ())))
            break
        result = result_of.get(number)
        end = ends.get(number, End.PICKED if result else End.EMPTY)
        found.append(Passage(number, commit, result, end, conflicts.get(number, ())))
    return found


def _unmerged(git: Git) -> bool:
    return bool(git.run("ls-files", "--unmerged").stdout)


def read_conflicts(git: Git) -> tuple[ConflictFile, ...]:
    """The files in conflict in the work tree, with all three sides."""
    stages: dict[str, list[int]] = {}
    for entry in git.null_separated("ls-files", "--unmerged", "-z"):
        meta, _, path = entry.partition("\t")
        stages.setdefault(path, []).append(int(meta.split()[2]))
    found = []
    for path, have in sorted(stages.items()):
        shown = git.run("diff", "--no-ext-diff", "--no-color", "--", path, check=False)
        text = shown.stdout.decode("utf-8", "replace")
        found.append(ConflictFile(path, tuple(sorted(have)), text[:_MOST_OF_A_FILE]))
    return tuple(found)


def _answer(git: Git, commit: str, text: PatchMail) -> None:
    """Put a person's text in the place of a commit that conflicts."""
    git.run("reset", "--quiet", "--hard")
    # Three ways as well: an earlier answer may be another one now, and twins have moved under it.
    done = git.run(
        "apply", "--index", "--3way", "--whitespace=nowarn", "-", stdin=text.diff, check=False
    )
    if done.code != 0:
        git.run("rebase", "--quit", check=False)
        raise RigError(
            f"the resolution of {text.name} no longer applies",
            where=git.folder,
            detail=done.error_text,
            next_step=f"remove it and resolve the conflict anew: "
            f"`./rig rebase --continue --forget {text.number}`",
        )
    # The author and date of the commit that it answers, the message of the resolution.
    git.run(
        "commit", "--quiet", "--no-verify", "--allow-empty", "--cleanup=verbatim",
        f"--reuse-message={commit}",
    )  # fmt: skip
    if text.message.strip() != git.run("log", "-1", "--format=%B").text.strip():
        git.run(
            "commit", "--quiet", "--amend", "--no-verify", "--cleanup=verbatim", "--file=-",
            stdin=text.message.encode() + b"\n",
        )  # fmt: skip
