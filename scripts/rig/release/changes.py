"""What changed in the series between two releases: pure, from what was read of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rig.release.series_read import PatchText, PinnedSeries

Series = Mapping[str, PinnedSeries]


class Kind(StrEnum):
    """What became of a patch; the value is the changelog's heading."""

    ADDED = "Added"
    CHANGED = "Changed"
    REWORDED = "The same change, told in other words"
    DROPPED = "Dropped"


@dataclass(frozen=True)
class Change:
    """What became of one patch on some pins.

    Args:
        reason: why a pin that is still there carries it no more; empty when it does not say.
    """

    kind: Kind
    number: str
    subject: str
    status: str
    pins: tuple[str, ...]
    reason: str = ""


def patch_changes(old: Series, new: Series) -> list[Change]:
    """Every patch that was added, changed, reworded or dropped; by kind, then by number.

    A pin that the old release did not have is compared with the old primary pin: what it lacks was
    left behind on the way, and what it has besides is new.
    """
    found: dict[Change, list[str]] = {}
    for version, pin in new.items():
        before = old.get(version) or _primary(old)
        for change in _of_pin(before, pin):
            found.setdefault(change, []).append(version)
    changes = [
        Change(c.kind, c.number, c.subject, c.status, tuple(versions), c.reason)
        for c, versions in found.items()
    ]
    kinds = list(Kind)
    return sorted(changes, key=lambda c: (kinds.index(c.kind), c.number))


def pin_changes(old: Series, new: Series) -> list[str]:
    """Sentences about pins that came, went, changed their role, or have other digests."""
    said = []
    for version, pin in new.items():
        before = old.get(version)
        if before is None:
            said.append(f"vLLM {version} is pinned, as the {pin.role} release")
            continue
        if before.role != pin.role:
            said.append(f"vLLM {version} is now the {pin.role} release")
        for name, digest in pin.artifacts.items():
            was = before.artifacts.get(name)
            if was is None:
                said.append(f"vLLM {version}: {name} is pinned as well")
            elif was != digest:
                said.append(f"vLLM {version}: {name} is pinned anew, {was} is now {digest}")
        said += [
            f"vLLM {version}: {name} is pinned no more"
            for name in before.artifacts
            if name not in pin.artifacts
        ]
    said += [f"vLLM {version} is pinned no more" for version in old if version not in new]
    return said


def _primary(series: Series) -> PinnedSeries:
    pins = list(series.values())
    return next((p for p in pins if p.role == "primary"), pins[0])


def _of_pin(old: PinnedSeries, new: PinnedSeries) -> Iterator[Change]:
    for number, patch in new.patches.items():
        before = old.patches.get(number)
        kind = _kind(before, patch)
        if kind:
            yield Change(kind, number, patch.subject, patch.status, ())
    for number, patch in old.patches.items():
        if number not in new.patches:
            why = new.skip.get(number, "")
            yield Change(Kind.DROPPED, number, patch.subject, patch.status, (), why)


def _kind(before: PatchText | None, after: PatchText) -> Kind | None:
    if before is None:
        return Kind.ADDED
    if before.sha256 == after.sha256:
        return None
    return Kind.REWORDED if before.change == after.change else Kind.CHANGED
