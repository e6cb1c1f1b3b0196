"""The one applier: `git am` on a scratch tree, and what to say when a patch does not apply."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from rig.errors import RigError
from rig.git import Git, advice
from rig.series.applied import commits_of_series
from rig.series.mail import PatchMail

# --keep-non-patch: [Platform] stays in the subject. --keep-cr: files with CRLF can be patched.
# Never -3: a three-way merge is for the rebase, an apply must be exact.
_AM = (
    "-c",
    "core.fsync=none",
    "am",
    "--quiet",
    "--keep-non-patch",
    "--keep-cr",
    "--no-3way",
    "--no-scissors",
    "--no-message-id",
    "--no-gpg-sign",
    "--committer-date-is-author-date",
)


def apply_mails(git: Git, mails: Sequence[PatchMail], where: str) -> None:
    """Apply patches as commits; each gets its mail's author and date and a fixed committer.

    Raises:
        RigError: a patch does not apply (names patch, file and both hunks), changes nothing,
            or gave another message than its text says.
    """
    if not mails:
        return
    already = len(commits_of_series(git))
    mailbox = b"".join(m.raw for m in mails)
    done = git.run(*_AM, stdin=mailbox, check=False)
    commits = commits_of_series(git)[already:]
    if done.code != 0:
        if advice(done.error_text):
            raise RigError(
                "git am failed",
                where=where,
                detail=done.error_text,
                next_step=advice(done.error_text),
            )
        if len(commits) >= len(mails):
            raise RigError("git am failed after the last patch", detail=done.error_text)
        failed = mails[len(commits)]
        raise RigError(
            f"{failed.name} does not apply",
            where=where,
            detail=explain(git, failed) or done.error_text,
            next_step="carry it to this release: apply the others, commit the change in build/, "
            "`make refresh`; or let the pin skip it with a reason",
        )
    if len(commits) != len(mails):
        raise RigError(
            f"git am made {len(commits)} commits of {len(mails)} patches",
            where=where,
            next_step="a patch file holds more or less than one mail: `make verify` names it",
        )
    messages = [git.run("log", "-1", "--format=%B", commit).text.rstrip("\n") for commit in commits]
    for mail, message in zip(mails, messages, strict=True):
        if message != mail.message:
            difference = "\n".join(
                difflib.unified_diff(
                    mail.message.split("\n"), message.split("\n"), "patch", "commit", lineterm=""
                )
            )
            raise RigError(
                f"git am gave {mail.name} another message than its text says",
                where=where,
                detail=difference,
                next_step="reword the commit message and `make refresh`",
            )


def explain(git: Git, mail: PatchMail) -> str:
    """Say which hunks of a patch do not fit the tree at HEAD: both sides of each."""
    try:
        # surrogateescape: a patch may hold any bytes, and this is only for showing.
        patch_set = PatchSet(mail.diff.decode("utf-8", "replace").splitlines(keepends=True))
    except UnidiffParseError as error:
        return f"{mail.name}: the diff itself is damaged: {error}"
    parts = []
    for file in patch_set:
        parts += [f"{mail.name}: {file.path}: {text}" for text in _explain_file(git, file)]
    return "\n".join(parts)


def _explain_file(git: Git, file: PatchedFile) -> list[str]:
    exists = git.run("cat-file", "-e", f"HEAD:{file.path}", check=False).code == 0
    if file.is_added_file:
        return ["the patch adds this file, but it is already there"] if exists else []
    source = file.source_file.removeprefix("a/")
    shown = git.run("show", f"HEAD:{source}", check=False)
    if shown.code != 0:
        return ["the patch changes this file, but it is not there"]
    lines = shown.stdout.decode("utf-8", "replace").splitlines()
    return [
        f"hunk {at} of {len(file)} does not fit\n{_both_sides(hunk, lines)}"
        for at, hunk in enumerate(file, 1)
        if not _fits(hunk, lines)
    ]


def _source_lines(hunk: Hunk) -> list[str]:
    return [str(line.value).rstrip("\r\n") for line in hunk if line.is_context or line.is_removed]


def _fits(hunk: Hunk, lines: list[str]) -> bool:
    wanted = _source_lines(hunk)
    size = len(wanted)
    return any(lines[at : at + size] == wanted for at in range(len(lines) - size + 1))


def _both_sides(hunk: Hunk, lines: list[str]) -> str:
    wanted = _source_lines(hunk)
    start, size = _nearest(wanted, lines, hunk.source_start - 1)
    there = lines[start : start + size]
    numbered = "\n".join(f"  {start + i + 1:5d} {line}" for i, line in enumerate(there))
    return (
        f"the patch says:\n{str(hunk).rstrip()}\n"
        f"the tree has, in the nearest place (lines {start + 1}-{start + size}):\n{numbered}"
    )


def _nearest(wanted: list[str], lines: list[str], expected: int) -> tuple[int, int]:
    """Where in a file the lines of a hunk most nearly are: start and number of lines."""
    size = min(len(wanted), len(lines))
    known = set(wanted)
    best, best_key = 0, (-1, 0)
    for start in range(len(lines) - size + 1):
        same = sum(line in known for line in lines[start : start + size] if line.strip())
        key = (same, -abs(start - expected))
        if key > best_key:
            best, best_key = start, key
    return best, size
