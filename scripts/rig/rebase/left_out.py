"""Patches that a release leaves out: whether the next one still has what makes that right.

A patch is dropped when upstream has it. Upstream may revert that later, and no conflict would say
so, as nothing is carried. So the lines of each patch that is left out are looked for in both
releases: a patch of which the old one has all, and the new one not, may be needed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, read_pins
from rig.rebase.diffs import effect
from rig.rebase.whereabouts import Rename
from rig.series.listing import patches_for

_BUT = "; but not in vLLM "  # in a pin's reason, before what was seen there


@dataclass(frozen=True)
class LeftOut:
    """A patch that a pin leaves out.

    Args:
        number: of the patch.
        why: the reason in the pin.
        carried_by: the newest pin that has it; None if none does.
        text: its text there, as bytes.
    """

    number: str
    why: str
    carried_by: str | None = None
    text: bytes = b""


@dataclass(frozen=True)
class NeededAgain:
    """A patch that is left out although the new release lacks its lines.

    Args:
        number: of the patch.
        found: which of its lines are not there.
        said: the same with the reason for which it is left out, and what comes next.
        carried_by: the pin to bring it back from.
    """

    number: str
    found: str
    said: str
    carried_by: str


def left_out_of(layout: Layout, pin: Pin) -> list[LeftOut]:
    """What a pin skips, each with its text in the newest pin that carries it."""
    pins = read_pins(layout)
    found = []
    for number, why in sorted(pin.skip.items()):
        holders = [
            LeftOut(number, why, other.version, patch.path.read_bytes())
            for other in pins
            if number not in other.skip
            for patch in patches_for(layout, other)
            if patch.number == number
        ]
        found.append(holders[0] if holders else LeftOut(number, why))
    return found


def needed_again(
    git: Git,
    left_out: Sequence[LeftOut],
    old: tuple[str, str],
    new: tuple[str, str],
    renames: Mapping[str, Rename],
) -> list[NeededAgain]:
    """Those whose lines the old release has, or once had, and the new one has not.

    Args:
        git: the repository with both releases.
        left_out: what the old pin skips.
        old, new: name and revision of each release.
        renames: path in the old release -> its new name.
    """
    found = []
    for one in left_out:
        if one.carried_by is None:
            continue
        why, known, _ = one.why.partition(_BUT)
        seen = _gone(git, one.text, old[1], new[1], renames, known=bool(known))
        if seen:
            said = (
                f"left out of {old[0]}: {why}. But {new[0]} lacks its lines: {seen}. "
                f"Next: bring it back from vLLM {one.carried_by} (docs/rebase.md, Reverted), or "
                "say why it is not needed"
            )
            found.append(NeededAgain(one.number, seen, said, one.carried_by))
    return found


def reason_with(why: str, version: str, found: str) -> str:
    """A pin's reason with what a release lacks: the next rebase looks again, and says it again."""
    return f"{why.partition(_BUT)[0]}{_BUT}{version}: {found}"


def cannot_be_looked_for(
    git: Git, left_out: Sequence[LeftOut], old: tuple[str, str]
) -> dict[str, str]:
    """Patch number -> why nobody knows whether the new release has it.

    Args:
        git, left_out, old: see `needed_again`.
    """
    found = {}
    for one in left_out:
        if one.carried_by is None:
            found[one.number] = f"{one.why} (no pin has its text: its lines were not looked for)"
        elif not effect(one.text):
            found[one.number] = f"{one.why} (it has no lines that could be looked for)"
        elif _BUT not in one.why:
            # Renamed by a release between: the text has the name that the file had before.
            paths = {path for path, _ in _net(effect(one.text), "+", "-")}
            gone = sorted(path for path in paths if not _lines(git, old[1], path))
            if gone:
                found[one.number] = (
                    f"{one.why} ({old[0]} has no {', '.join(gone)}: its lines were not looked for)"
                )
    return found


def _gone(
    git: Git, text: bytes, old: str, new: str, renames: Mapping[str, Rename], *, known: bool
) -> str:
    """Which lines of a patch one release has and the next one lacks, in words; empty if none.

    Lines that the file has elsewhere as well come and go with other changes: those that only the
    patch brings decide, if there are such.

    Args:
        known: the pin's reason says already that the old release lacks some.
    """
    changed = effect(text)
    adds, removes = _net(changed, "+", "-"), _net(changed, "-", "+")
    paths = {path for path, _ in adds | removes}
    before = {path: _lines(git, old, path) for path in paths}
    after = {p: _lines(git, new, renames[p].new if p in renames else p) for p in paths}
    if not known and any(before[path][line] < n for (path, line), n in adds.items()):
        return ""
    own = {(p, line): n for (p, line), n in adds.items() if known or before[p][line] == n}
    decisive = own or adds
    gone = [
        (path, line)
        for (path, line), n in decisive.items()
        if after[path][line] < (n if known else before[path][line])
    ]
    back = [
        (path, line)
        for path, line in removes
        if after[path][line] > (0 if known else before[path][line])
    ]
    if not gone and (adds or not back):
        return ""
    parts = []
    if gone:
        path, line = gone[0]
        parts.append(
            f"{len(gone)} of the {len(decisive)} that it adds ({path} lacks {line.strip()[:60]!r})"
        )
    if back:
        path, line = back[0]
        parts.append(
            f"{len(back)} of the {len(removes)} that it removes are back in {path} "
            f"({line.strip()[:60]!r})"
        )
    return ", and ".join(parts)


def _net(changed: Mapping[tuple[str, str], int], this: str, other: str) -> Counter[tuple[str, str]]:
    """(file, line) -> how many more a patch has of one sign than of the other."""
    found: Counter[tuple[str, str]] = Counter()
    for (path, line), count in changed.items():
        if line[0] == this:
            found[path, line[1:].rstrip("\r\n")] += count
        elif line[0] == other:
            found[path, line[1:].rstrip("\r\n")] -= count
    return +found


def _lines(git: Git, revision: str, path: str) -> Counter[str]:
    """The lines of a file in a release; none if it is not there."""
    done = git.run("cat-file", "blob", f"{revision}:{path}", check=False)
    if done.code != 0:
        return Counter()
    text = done.stdout.decode("utf-8", "surrogateescape")
    return Counter(line.rstrip("\r") for line in text.split("\n"))
