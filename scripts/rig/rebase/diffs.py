"""Two texts of one patch beside each other: where its hunks stand, and what they do."""

from __future__ import annotations

from collections import Counter

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet


def parsed(raw: bytes) -> PatchSet | None:
    """The hunks of a patch; None if they cannot be read."""
    start = raw.find(b"diff --git ")
    # Not str.splitlines: a form feed within a line would split it.
    lines = raw[start:].decode("utf-8", "surrogateescape").split("\n")
    try:
        return PatchSet([f"{line}\n" for line in lines])
    except UnidiffParseError:
        return None


def moves(old: bytes, new: bytes) -> tuple[str, ...]:
    """Per hunk that stands elsewhere: its file and by how many lines."""
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return ()
    there = {file.path: file for file in after}
    found = []
    for file in before:
        other = there.get(file.path)
        if other is None or file.is_added_file:
            continue
        for one, two in zip(file, other, strict=False):
            if one.source_start != two.source_start:
                found.append(f"{file.path}: {two.source_start - one.source_start:+d}")
    return tuple(found)


def effect(raw: bytes) -> Counter[tuple[str, str]]:
    """Added and removed lines with their file, however often."""
    patch = parsed(raw)
    found: Counter[tuple[str, str]] = Counter()
    for file in patch or ():
        for hunk in file:
            for line in hunk:
                if (line.is_added or line.is_removed) and line.value.strip():
                    found[file.path, f"{line.line_type}{line.value}"] += 1
    return found


def renamed(old: bytes, new: bytes) -> list[str]:
    """A sentence if files of the patch have other names upstream."""
    before = {file.path for file in parsed(old) or () if not file.is_added_file}
    after = {file.path for file in parsed(new) or ()}
    gone, come = sorted(before - after), sorted(after - {f.path for f in parsed(old) or ()})
    if not gone or not come:
        return []
    return [f"{', '.join(gone)} became {', '.join(come)} upstream"]
