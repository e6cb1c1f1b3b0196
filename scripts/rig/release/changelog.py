"""CHANGELOG.md of a release: what became of pins and patches, and the commits since the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rig.git import Git
from rig.layout import Layout
from rig.release.changes import Change, Kind, Series, patch_changes, pin_changes
from rig.release.point import Point


def commits_since(layout: Layout, point: Point) -> list[tuple[str, str]]:
    """(commit, subject) of what came since the last release, oldest first, without merges."""
    if point.previous is None:
        return []
    # The whole id: how far git shortens one depends on how much a clone holds.
    fields = Git(layout.root).null_separated(
        "log", "-z", "--reverse", "--topo-order", "--no-merges", "--format=%H %s",
        f"{point.previous.commit}..{point.commit}",
    )  # fmt: skip
    return [(f[:40], f[41:]) for f in fields]


def changelog(
    point: Point, old: Series | None, new: Series, commits: Sequence[tuple[str, str]]
) -> str:
    """The text; `old` is None for a first release."""
    return "\n".join(_lines(point, old, new, commits)) + "\n"


def _lines(
    point: Point, old: Series | None, new: Series, commits: Sequence[tuple[str, str]]
) -> Iterator[str]:
    yield f"# vllm-rig {point.version}"
    yield ""
    if point.previous is None or old is None:
        yield "The first release."
    else:
        yield f"Since {point.previous.name}."
    yield ""
    yield "| vLLM | role | patches | series | tree |"
    yield "|---|---|---|---|---|"
    for pin in new.values():
        yield (
            f"| {pin.version} | {pin.role} | {len(pin.patches)} | {pin.series[:12]} "
            f"| {pin.tree[:12]} |"
        )
    if old is None:
        nothing = {version: replace(pin, patches={}) for version, pin in new.items()}
        changes = patch_changes(nothing, new)
        pins: list[str] = []
    else:
        changes = patch_changes(old, new)
        pins = pin_changes(old, new)
    if pins:
        yield from ["", "## Releases of vLLM", ""]
        yield from (f"- {_plain(line)}" for line in pins)
    yield from ["", "## Patches"]
    if not changes:
        yield from ["", "None changed."]
    for kind in Kind:
        chosen = [c for c in changes if c.kind is kind]
        if chosen:
            yield from ["", f"### {kind}", ""]
            yield from (_patch_line(c, len(new)) for c in chosen)
    if commits:
        yield from ["", "## Commits", ""]
        yield from (f"- {_plain(subject)} ({commit[:12]})" for commit, subject in commits)


def _patch_line(change: Change, pins: int) -> str:
    where = "" if len(change.pins) == pins else f" (vLLM {', '.join(change.pins)})"
    why = f": {change.reason}" if change.reason else ""
    return _plain(f"- {change.number} {change.subject}{where}{why}. Upstream: {change.status}")


def _plain(text: str) -> str:
    """Text that Markdown would take for markup, escaped."""
    for sign in ("\\", "`", "*", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text
