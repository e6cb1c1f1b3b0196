"""A patch in a person's hands, in conflict or to be edited: put it there, take the answer back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set

from rig.errors import RigError
from rig.git import Git
from rig.rebase.passage import SERIES_REF, carry_over, is_under_way, numbers_of
from rig.rebase.prepare import Ground
from rig.rebase.survey import Decisions
from rig.series.apply import uncommitted_in
from rig.series.export import export_repository, patch_bytes
from rig.series.mail import PatchMail, parse_mail

_MARKERS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")


def put_there(ground: Ground, number: str, decisions: Decisions) -> None:
    """Leave the tree at one patch, with everything before it in place."""
    carry_over(
        ground.git,
        ground.onto,
        ground.commits,
        decisions.resolutions,
        leave_out=decisions.leave_out,
        edit=decisions.edit,
        stop_at=number,
    )


def take_answers(
    git: Git, mails: Mapping[str, PatchMail], number: str, dropped: Set[str]
) -> Iterator[PatchMail]:
    """A person's texts, from the tree that was left at patch `number`.

    The work tree holds one, or the person has committed it, perhaps by `git rebase --continue` or
    `--skip`, which go on to later patches: what is committed of these is an answer, too, and the
    conflict that git stands at now is the one that the work tree answers. A patch that was left
    to be edited is committed already; what the work tree holds beside is of it.

    Args:
        git: the tree.
        mails: patch number -> the patch as it was.
        number: where the tree was left.
        dropped: patches whose answer does not matter any more.

    Raises:
        RigError: conflicts, unknown files or work of no patch are left, or an answer changes
            nothing.
    """
    done = _committed(git)
    at = _under_way(git)
    for later in sorted(done.keys() - dropped):
        if later >= number:
            yield _read(git, _known(mails, later, git), done[later])
    if at is not None and at not in done:
        if at not in dropped:
            yield _read(git, _known(mails, at, git), _commit_work(git, mails[at]))
        return
    loose = uncommitted_in(git.folder)
    if at is not None and loose and git.line("rev-parse", "HEAD") == done[at] and _to_edit(git):
        if at not in dropped:
            yield _read(git, _known(mails, at, git), _commit_work(git, mails[at], "HEAD^"))
    elif loose:
        raise RigError(
            "no rebase is under way in the tree, and it holds work that is not committed"
            if at is None
            else f"{at} is committed in the tree, and there is more work that is not",
            where="\n         ".join(f"{git.folder}/{entry[3:]}" for entry in loose[:10]),
            next_step="amend the commit of its patch with it, or take it out of the tree; then "
            "the same command again",
        )


def _known(mails: Mapping[str, PatchMail], number: str, git: Git) -> PatchMail:
    if number not in mails:
        raise RigError(
            f"the tree has a commit of a patch {number}, which the series does not have",
            where=git.folder,
            next_step="make new patches after the rebase; drop the commit",
        )
    return mails[number]


def _read(git: Git, mail: PatchMail, commit: str) -> PatchMail:
    with export_repository(git.folder) as exporter:
        raw = patch_bytes(exporter, commit)
    answer = parse_mail(mail.name, raw, git, where=f"the resolution of {mail.name}")
    if answer.subject != mail.subject:
        raise RigError(
            f"the resolution of {mail.name} has another subject: {answer.subject!r}",
            where=git.folder,
            next_step="keep the subject, after which the file is named; change it after the rebase",
        )
    return answer


def _committed(git: Git) -> dict[str, str]:
    stands = git.run("merge-base", "--is-ancestor", "refs/rig/pristine", "HEAD", check=False)
    if stands.code != 0:  # `git rebase --abort` went back to the old release
        return {}
    head = git.lines("rev-list", "--max-count=2000", "HEAD", "--not", "refs/rig/pristine")
    found: dict[str, str] = {}
    for commit, number in numbers_of(git, head).items():
        if number in found:
            raise RigError(
                f"the tree has two commits of the patch {number}",
                where=f"{git.folder}: {commit[:12]} and {found[number][:12]}",
                next_step="make one of them, such as with `git reset --soft HEAD^` and `git commit "
                "--amend` there; then the same command again",
            )
        found[number] = commit
    return found


def _under_way(git: Git) -> str | None:
    """The patch that `git rebase` stands at in the tree; None if it has come to its end."""
    if not is_under_way(git):
        return None
    done = git.run("rev-parse", "--verify", "--quiet", "REBASE_HEAD", check=False)
    commit = done.text.strip()
    return numbers_of(git, [commit])[commit] if commit else None


def _to_edit(git: Git) -> bool:
    """Whether git stopped at an `edit`, and not at a conflict that is committed since."""
    return (git.folder / ".git" / "rebase-merge" / "amend").exists()


def _commit_work(git: Git, mail: PatchMail, parent: str = "HEAD") -> str:
    stages = _stages(git)
    unmerged = sorted(stages)
    still = [p for p in unmerged if _has_markers(git, p)]
    if still:
        raise RigError(
            f"the conflict of {mail.name} is not resolved",
            where="\n         ".join(f"{git.folder}/{p}" for p in still),
            next_step="edit these files until no <<<<<<< is left, then the same command again",
        )
    still = [p for p in unmerged if _is_untouched(git, p, stages[p])]
    if still:
        raise RigError(
            f"the conflict of {mail.name} is not resolved: git left one side's file, unmarked",
            where="\n         ".join(f"{git.folder}/{p}" for p in still),
            next_step="in the tree, `git add` each that is right as it lies there, `git rm` each "
            "that is to go; then the same command again",
        )
    unknown = [entry[3:] for entry in uncommitted_in(git.folder) if entry[:2] in ("??", "!!")]
    if unknown:
        raise RigError(
            "there are files in the tree that git does not know",
            where="\n         ".join(f"{git.folder}/{p}" for p in unknown[:10]),
            next_step="`git add --force` those that belong to the patch, remove the others",
        )
    git.run("add", "--update")
    for path in unmerged:  # a file that the person deleted, or kept where upstream deleted it
        exists = (git.folder / path).exists()
        git.run("add", "--force", "--", path) if exists else git.run(
            "rm", "--cached", "--quiet", "--ignore-unmatch", "--", path
        )
    changed = git.null_separated("diff", "--cached", "--name-only", "-z", parent)
    marked = [p for p in changed if _has_markers(git, p)]
    if marked:
        raise RigError(
            f"conflict markers are left in {', '.join(marked)}",
            where=git.folder,
            next_step="remove them, then the same command again",
        )
    if not changed:
        raise RigError(
            f"the resolution of {mail.name} changes nothing",
            where=git.folder,
            next_step="if the patch is not needed any more: `./rig rebase --continue --drop "
            f"{mail.number} --why 'a reason'`",
        )
    tree = git.line("write-tree")
    original = _original(git, mail.number)
    author = (
        git.run("log", "-1", "--format=%an%x00%ae%x00%aD", original).text.strip("\n").split("\0")
    )
    env = dict(zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), author, strict=True))
    # What is beside a commit to edit leaves its message, which the person may have amended.
    said_in = original if parent == "HEAD" else "HEAD"
    message = git.run("log", "-1", "--format=%B", said_in).stdout
    made = git.run("commit-tree", tree, "-p", parent, "-F", "-", stdin=message, env=env)
    return made.text.strip()


def _original(git: Git, number: str) -> str:
    commits = git.lines("rev-list", SERIES_REF, "--not", "refs/rig/from")
    return {n: commit for commit, n in numbers_of(git, commits).items()}[number]


def _stages(git: Git) -> dict[str, dict[int, tuple[str, str]]]:
    """Unmerged path -> stage -> mode and blob."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for entry in git.null_separated("ls-files", "--unmerged", "-z"):
        meta, _, path = entry.partition("\t")
        mode, blob, stage = meta.split()
        found.setdefault(path, {})[int(stage)] = (mode, blob)
    return found


def _is_untouched(git: Git, path: str, stages: Mapping[int, tuple[str, str]]) -> bool:
    """Whether a file without markers lies there as git left it: to do nothing is no answer.

    Git writes no markers where one side has no such file, or where it is a symbolic link.
    """
    place = git.folder / path
    if not (place.is_symlink() or place.is_file()):
        return False
    if {2, 3} <= stages.keys() and all(mode != "120000" for mode, _ in stages.values()):
        return False
    raw = os.fsencode(place.readlink()) if place.is_symlink() else place.read_bytes()
    blob = git.run("hash-object", "--stdin", stdin=raw).text.strip()
    return blob in {stage_blob for _, stage_blob in stages.values()}


def _has_markers(git: Git, path: str) -> bool:
    place = git.folder / path
    if not place.is_file() or place.is_symlink():
        return False
    lines = place.read_bytes().decode("utf-8", "replace").splitlines()
    return any(line.startswith(marker) for line in lines for marker in _MARKERS)
