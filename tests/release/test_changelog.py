"""The changelog: what became of patches and pins since the last release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.errors import RigError
from rig.release.changelog import changelog
from rig.release.changes import Change, Kind, patch_changes, pin_changes
from rig.release.command import preview
from rig.release.point import Point, ReleaseTag
from rig.release.series_read import PatchText, PinnedSeries, read_pinned_series
from tests.series.releases import PRIMARY, SECOND, message

from .shop import X86, Shop

LAST = ReleaseTag("v0.3.0+rig.1", 1, "a" * 40)
POINT = Point("0.3.0+rig.2", 2, "b" * 40, "c" * 40, 0, False, LAST)


def text(number: str, sha256: str = "1", change: str = "1", status: str = "Pending") -> PatchText:
    return PatchText(number, f"patches/{number}-x.patch", f"Do {number}", status, sha256, change)


def pin(version: str, *patches: PatchText, role: str = "secondary", **skip: str) -> PinnedSeries:
    return PinnedSeries(
        version=version,
        role=role,
        artifacts={f"vllm-{version}.tar.gz": "d" * 64},
        skip={number.lstrip("p"): why for number, why in skip.items()},
        patches={p.number: p for p in patches},
        series="e" * 64,
        tree="f" * 40,
    )


def series(*pins: PinnedSeries) -> dict[str, PinnedSeries]:
    return {p.version: p for p in pins}


def test_each_kind_of_change_is_told_apart() -> None:
    old = series(pin("2", text("0101"), text("0102"), text("0103"), text("0104"), role="primary"))
    new = series(
        pin(
            "2",
            text("0101"),
            text("0102", sha256="2"),
            text("0103", sha256="2", change="2"),
            text("0105", status="Submitted https://example.org/1"),
            role="primary",
        )
    )
    assert patch_changes(old, new) == [
        Change(Kind.ADDED, "0105", "Do 0105", "Submitted https://example.org/1", ("2",)),
        Change(Kind.CHANGED, "0103", "Do 0103", "Pending", ("2",)),
        Change(Kind.REWORDED, "0102", "Do 0102", "Pending", ("2",)),
        Change(Kind.DROPPED, "0104", "Do 0104", "Pending", ("2",)),
    ]
    assert patch_changes(new, new) == []


def test_one_line_for_all_pins_that_share_a_change() -> None:
    old = series(pin("2", text("0101"), role="primary"), pin("1", text("0101")))
    new = series(
        pin("2", text("0101", "2", "2"), text("0102"), role="primary"),
        pin("1", text("0101"), text("0102")),
    )
    changes = patch_changes(old, new)
    assert [(c.kind, c.number, c.pins) for c in changes] == [
        (Kind.ADDED, "0102", ("2", "1")),
        (Kind.CHANGED, "0101", ("2",)),
    ]
    lines = changelog(POINT, old, new, []).splitlines()
    assert "- 0102 Do 0102. Upstream: Pending" in lines
    assert "- 0101 Do 0101 (vLLM 2). Upstream: Pending" in lines


def test_a_new_pin_is_compared_with_the_old_primary_one() -> None:
    old = series(pin("2", text("0101"), text("0102"), role="primary"), pin("1", text("0101")))
    merged = "merged upstream as commit 1a2b3c4d"
    new = series(
        pin("3", text("0101"), text("0103"), role="primary", p0102=merged),
        pin("2", text("0101"), text("0102")),
    )
    changes = patch_changes(old, new)
    assert [(c.kind, c.number, c.pins, c.reason) for c in changes] == [
        (Kind.ADDED, "0103", ("3",), ""),
        (Kind.DROPPED, "0102", ("3",), merged),
    ]
    assert pin_changes(old, new) == [
        "vLLM 3 is pinned, as the primary release",
        "vLLM 2 is now the secondary release",
        "vLLM 1 is pinned no more",
    ]
    assert (
        f"- 0102 Do 0102 (vLLM 3): {merged}. Upstream: Pending"
        in changelog(POINT, old, new, []).splitlines()
    )


def test_digests_that_changed_are_told() -> None:
    old = series(replace(pin("2", role="primary"), artifacts={"a": "1", "b": "2"}))
    new = series(replace(pin("2", role="primary"), artifacts={"a": "3", "c": "4"}))
    assert pin_changes(old, new) == [
        "vLLM 2: a is pinned anew, 1 is now 3",
        "vLLM 2: c is pinned as well",
        "vLLM 2: b is pinned no more",
    ]


def test_a_subject_is_no_markup() -> None:
    old = series(pin("2", role="primary"))
    odd = replace(text("0101"), subject="Read <tag> and `x` * 2")
    said = changelog(POINT, old, series(pin("2", odd, role="primary")), [("a" * 40, "Do <b>")])
    assert r"- 0101 Read \<tag> and \`x\` \* 2. Upstream: Pending" in said.splitlines()
    assert r"- Do \<b> (aaaaaaaaaaaa)" in said.splitlines()


def test_nothing_changed() -> None:
    same = series(pin("2", text("0101"), role="primary"))
    assert "None changed." in changelog(POINT, same, same, [])


def test_from_one_tag_to_the_next_in_a_real_history(shop: Shop) -> None:
    shop.tag("v0.3.0+rig.1")
    first = read_pinned_series(shop.layout, "it")
    assert list(first) == [PRIMARY, SECOND]
    shop.git("reset", "--quiet", "--hard", "HEAD~2")
    shop.patch("0101", "Run it", ("vllm/engine.py", "engine_040 = 40", "engine_040 = 4"))
    shop.replace("vllm/config.py", "config_005 = 5", "c_5 = 55")
    shop.commit(message("0301", "[Config] A longer subject " + "that git folds " * 4))
    shop.refresh()
    shop.save("Rework the series")
    shop.revision(2)
    _, _, said = preview(shop.layout, [], X86)
    lines = said.splitlines()
    assert lines[0] == "# vllm-rig 0.3.0+rig.2"
    assert "Since v0.3.0+rig.1." in lines
    long = ("that git folds " * 4).strip()
    assert f"- 0301 [Config] A longer subject {long}. Upstream: Pending" in lines
    reworded = lines.index("### The same change, told in other words")
    assert lines[reworded + 2] == "- 0101 Run it. Upstream: Pending"
    dropped = lines.index("### Dropped")
    assert lines[dropped + 2] == "- 0201 [Config] Configure. Upstream: Pending"
    assert "### Changed" not in lines
    at = lines.index("## Commits")
    assert [line[: line.rindex(" (")] for line in lines[at + 2 :]] == [
        "- Rework the series",
        "- Revision 2",
    ]
    assert lines[-1].endswith(f"({shop.head()[:12]})")


def test_an_old_release_that_broke_todays_rules_is_still_read(shop: Shop) -> None:
    """The rules for patches grow stricter; a release that went out before must not block one."""
    path = next(shop.layout.patches.glob("0101-*"))
    old = path.read_bytes()
    path.write_bytes(old.replace(b"Removal-Plan: when upstream has it\n", b""))
    lock = shop.layout.lock(PRIMARY)
    for version in (PRIMARY, SECOND):
        lock = shop.layout.lock(version)
        locked = lock.read_text()
        import hashlib

        was = hashlib.sha256(old).hexdigest()
        assert was in locked
        now = hashlib.sha256(path.read_bytes()).hexdigest()
        lock.write_text(locked.replace(was, now))
    found = read_pinned_series(shop.layout, "it")
    assert found[PRIMARY].patches["0101"].subject == "Run the engine"


def test_a_text_that_its_lock_does_not_name_is_refused(shop: Shop) -> None:
    path = next(shop.layout.patches.glob("0101-*"))
    path.write_bytes(path.read_bytes().replace(b"Why it is so.", b"Why?"))
    with pytest.raises(RigError, match="is not the text that its lock names"):
        read_pinned_series(shop.layout, "v0.3.0+rig.1")


def test_a_release_without_locks_is_refused(shop: Shop) -> None:
    shop.layout.lock(SECOND).unlink()
    with pytest.raises(RigError, match="the series cannot be read") as caught:
        read_pinned_series(shop.layout, "v0.3.0+rig.1")
    assert "v0.3.0+rig.1" in str(caught.value)
