"""Where upstream put what a patch changes: a file under another name, lines in another file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rig.git import Git
from rig.rebase.diffs import parsed, path_of

_LONG_LINE = 16  # characters from which a line is rare enough to look for in other files
_MOST_LINES = 8  # each is a search of the whole tree
# As a merge of git looks for them: half of a file, and its limit for the pairs to compare.
_DETECTION = ("--find-renames=50%", "-l7000", "--diff-filter=R")


@dataclass(frozen=True)
class Rename:
    """A file that has another name in the new release.

    Args:
        old, new: its paths.
        percent: how much of it git finds there.
    """

    old: str
    new: str
    percent: int

    def __str__(self) -> str:
        return f"{self.old} became {self.new} upstream ({self.percent} % the same)"


def renames(git: Git, old: str, new: str) -> dict[str, Rename]:
    """Path in one release -> its new name in another, as git detects it."""
    found = git.null_separated("diff-tree", "-r", "-z", "--name-status", *_DETECTION, old, new)
    rows = zip(found[::3], found[1::3], found[2::3], strict=True)
    return {path: Rename(path, come, int(score[1:])) for score, path, come in rows}


def followed(
    old: bytes, new: bytes, known: Mapping[str, Rename], number: str, message: str
) -> list[str]:
    """What to say of a patch that git put into files of other names; empty if it did not.

    Args:
        old, new: the patch before and after.
        known: the renames of the new release.
        number: of the patch.
        message: of the patch, which may name a file that has another name now.
    """
    before = {path_of(file) for file in parsed(old) or () if not file.is_added_file}
    after = {path_of(file) for file in parsed(new) or ()}
    gone = sorted(before - after)
    come = sorted(after - {path_of(file) for file in parsed(old) or ()})
    if not gone or not come:
        return []
    said = [str(known[p]) for p in gone if p in known]
    unknown = [p for p in gone if p not in known]
    left = [p for p in come if p not in {rename.new for rename in known.values()}]
    if unknown:
        said.append(f"{', '.join(unknown)} became {', '.join(left or come)} upstream")
    stale = [p for p in gone if p in message]
    return [
        *said,
        "git put it there; next: read its range-diff in the report and run its tests"
        + (f"; its message still names {', '.join(stale)}" if stale else "")
        + f"; `--edit {number}` stops at it, to change it",
    ]


def where_its_lines_are(
    git: Git, onto: str, patch: bytes, path: str, now: str | None = None
) -> list[str]:
    """Other files of the new release that hold what a patch wants to change, if its own has not.

    Only lines that are long enough to be rare are looked for, the longest of them.

    Args:
        git: the repository with the new release.
        onto: its commit.
        patch: the patch's text.
        path: the file of the patch.
        now: its name in the new release, if it has another one there.
    """
    lines = {
        line.value.strip()
        for file in parsed(patch) or ()
        if path_of(file) == path
        for hunk in file
        for line in hunk
        if not line.is_added
    }
    wanted = sorted((t for t in lines if len(t) >= _LONG_LINE), key=len)[-_MOST_LINES:]
    hits = _found(git, onto, wanted, f"*{PurePosixPath(path).suffix}")
    holding = Counter(p for p, _ in hits)
    if holding[now or path] * 2 > len(wanted):
        return []
    return sorted(p for p, count in holding.most_common(3) if count * 2 > len(wanted))


def _found(git: Git, onto: str, wanted: Sequence[str], files: str) -> set[tuple[str, str]]:
    """Each (file, text) of the new release that git finds, in one search of the whole tree."""
    if not wanted:
        return set()
    texts = [word for text in wanted for word in ("-e", text)]
    done = git.run("grep", "-z", "-F", *texts, onto, "--", files, check=False)
    hits = set()
    for row in done.text.split("\n"):
        place, _, line = row.partition("\0")
        hits |= {(place.partition(":")[2], text) for text in wanted if text in line}
    return hits
