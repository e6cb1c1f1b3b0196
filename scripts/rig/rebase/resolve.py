"""A conflict in a person's hands: put it there, and take the answer back."""

from __future__ import annotations

from rig.errors import RigError
from rig.git import Git
from rig.rebase.passage import SERIES_REF, carry_over, numbers_of
from rig.rebase.prepare import Ground
from rig.rebase.survey import Decisions
from rig.series.export import export_repository, patch_bytes
from rig.series.mail import PatchMail, parse_mail

_MARKERS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")


def put_conflict(ground: Ground, number: str, decisions: Decisions) -> None:
    """Leave the tree at the conflict of one patch, with everything before it in place."""
    carry_over(
        ground.git,
        ground.onto,
        ground.commits,
        decisions.resolutions,
        leave_out=decisions.leave_out,
        stop_at=number,
    )


def take_answer(git: Git, mail: PatchMail, next_step: str) -> PatchMail:
    """The person's text for the patch whose conflict lies in the tree.

    Either the work tree holds it, or the person has committed it, perhaps by `git rebase
    --continue`, which may have gone on to later patches.

    Args:
        git: the tree.
        mail: the patch as it was.
        next_step: what to do when the patch is not needed any more.

    Raises:
        RigError: conflicts or unknown files are left, or the answer changes nothing.
    """
    committed = _committed(git, mail.number)
    commit = committed or _commit_work(git, mail, next_step)
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


def _committed(git: Git, number: str) -> str | None:
    head = git.lines("rev-list", "--max-count=2000", "HEAD", "--not", "refs/rig/pristine")
    found = {n: commit for commit, n in numbers_of(git, head).items()}
    return found.get(number)


def _commit_work(git: Git, mail: PatchMail, next_step: str) -> str:
    unmerged = sorted(
        {e.partition("\t")[2] for e in git.null_separated("ls-files", "--unmerged", "-z")}
    )
    still = [p for p in unmerged if _has_markers(git, p)]
    if still:
        raise RigError(
            f"the conflict of {mail.name} is not resolved",
            where="\n         ".join(f"{git.folder}/{p}" for p in still),
            next_step="edit these files until no <<<<<<< is left, then the same command again",
        )
    unknown = git.null_separated("ls-files", "--others", "--exclude-standard", "-z")
    unknown = [p for p in unknown if "__pycache__" not in p]
    if unknown:
        raise RigError(
            "there are files in the tree that git does not know",
            where="\n         ".join(f"{git.folder}/{p}" for p in unknown[:10]),
            next_step="`git add` those that belong to the patch, remove the others",
        )
    git.run("add", "--update")
    for path in unmerged:  # a file that the person deleted, or kept where upstream deleted it
        exists = (git.folder / path).exists()
        git.run("add", "--force", "--", path) if exists else git.run(
            "rm", "--cached", "--quiet", "--ignore-unmatch", "--", path
        )
    changed = git.null_separated("diff", "--cached", "--name-only", "-z", "HEAD")
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
            next_step=next_step,
        )
    tree = git.line("write-tree")
    original = _original(git, mail.number)
    author = (
        git.run("log", "-1", "--format=%an%x00%ae%x00%aD", original).text.strip("\n").split("\0")
    )
    env = dict(zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), author, strict=True))
    message = git.run("log", "-1", "--format=%B", original).stdout
    made = git.run("commit-tree", tree, "-p", "HEAD", "-F", "-", stdin=message, env=env)
    return made.text.strip()


def _original(git: Git, number: str) -> str:
    commits = git.lines("rev-list", SERIES_REF, "--not", "refs/rig/from")
    return {n: commit for commit, n in numbers_of(git, commits).items()}[number]


def _has_markers(git: Git, path: str) -> bool:
    place = git.folder / path
    if not place.is_file() or place.is_symlink():
        return False
    lines = place.read_bytes().decode("utf-8", "replace").splitlines()
    return any(line.startswith(marker) for line in lines for marker in _MARKERS)
