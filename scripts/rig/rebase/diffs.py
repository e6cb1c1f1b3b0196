"""Two texts of one patch beside each other: where its hunks stand, and what they do."""

from __future__ import annotations

import re
from collections import Counter

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchedFile, PatchSet


def parsed(raw: bytes) -> PatchSet | None:
    """The hunks of a patch; None if they cannot be read."""
    start = raw.find(b"diff --git ")
    # Not str.splitlines: a form feed within a line would split it.
    lines = raw[start:].decode("utf-8", "surrogateescape").split("\n")
    try:
        return PatchSet([f"{line}\n" for line in lines])
    except UnidiffParseError:
        return None


def path_of(file: PatchedFile) -> str:
    """The path of a file in a patch; git writes names beyond ASCII quoted, as C does."""
    path = str(file.path)
    if not (path.startswith('"') and path.endswith('"')):
        return path
    # Names with control characters, which have other escapes, are in no patch: a lock refuses them.
    raw = re.sub(
        rb"\\([0-7]{3}|.)",
        lambda found: bytes([int(found[1], 8)]) if len(found[1]) == 3 else found[1],
        path[1:-1].encode("utf-8", "surrogateescape"),
    )
    return raw.decode("utf-8", "surrogateescape")


def moves(old: bytes, new: bytes) -> tuple[str, ...]:
    """Per hunk that stands elsewhere: its file and by how many lines."""
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return ()
    there = {path_of(file): file for file in after}
    found = []
    for file in before:
        other = there.get(path_of(file))
        if other is None or file.is_added_file:
            continue
        for one, two in zip(file, other, strict=False):
            if one.source_start != two.source_start:
                found.append(f"{path_of(file)}: {two.source_start - one.source_start:+d}")
    return tuple(found)


def effect(raw: bytes) -> Counter[tuple[str, str]]:
    """Added and removed lines with their file, however often."""
    patch = parsed(raw)
    found: Counter[tuple[str, str]] = Counter()
    for file in patch or ():
        for hunk in file:
            for line in hunk:
                if (line.is_added or line.is_removed) and line.value.strip():
                    found[path_of(file), f"{line.line_type}{line.value}"] += 1
    return found
