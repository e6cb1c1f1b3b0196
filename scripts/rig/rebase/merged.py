"""The second signal that upstream has a patch: its own lines, looked for in the new release.

The first is that git's three-way merge leaves nothing of it. That alone is not enough: a change
that was reverted and a look-alike both leave nothing in some histories. So each line that the
patch adds must be in the new release's file as often as the patch wants it there, and a line that
it removes no more often.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rig.git import Git
from rig.series.applied import touched_files
from rig.series.lock import ABSENT


@dataclass(frozen=True)
class Witness:
    """What the new release's files say of one patch.

    Args:
        agrees: they hold all that the patch does.
        found: one sentence: how many lines of which file, or what is missing.
    """

    agrees: bool
    found: str


def upstream_has(git: Git, commit: str, onto: str) -> Witness:
    """Compare what a commit does to each file with the files of the new release."""
    added = 0
    paths = []
    for file in touched_files(git, f"{commit}^", commit):
        there = _lines(git, _blob_at(git, onto, file.path))
        if file.after == ABSENT:
            if there is not None:
                return Witness(False, f"{file.path} is still there, and the patch deletes it")
            paths.append(file.path)
            continue
        if there is None:
            return Witness(False, f"{file.path} is not there")
        before = _lines(git, file.before) or Counter()
        after = _lines(git, file.after) or Counter()
        for line, count in (after - before).items():
            if there[line] < after[line] and line.strip():
                return Witness(False, f"{file.path} lacks {line.strip()[:60]!r}")
            added += count
        for line in before - after:
            if there[line] > after[line] and line.strip():
                return Witness(False, f"{file.path} still has {line.strip()[:60]!r}")
        paths.append(file.path)
    shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return Witness(True, f"all {added} lines that it adds are in {shown}")


def _blob_at(git: Git, revision: str, path: str) -> str:
    done = git.run("rev-parse", "--verify", "--quiet", f"{revision}:{path}", check=False)
    return done.text.strip() if done.code == 0 else ABSENT


def _lines(git: Git, blob: str) -> Counter[str] | None:
    if blob == ABSENT:
        return None
    text = git.blobs([blob])[blob].decode("utf-8", "surrogateescape")
    return Counter(text.splitlines())
