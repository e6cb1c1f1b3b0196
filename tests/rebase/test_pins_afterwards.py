"""What a rebase leaves for all pins: each older one its tree, and a refresh nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.pins import Role, find_pin, primary_pin
from rig.rebase import command
from rig.rebase.state import tree_of
from rig.series.apply import apply
from rig.series.lock import read_lock
from tests.series.releases import Tree, release_files
from tests.series.workshop import Workshop, in_children, run_git

from .conftest import Make, checkout_of, offer, read_tree
from .corpus import BASE, CASES, CONFIG, ENGINE, FIX, ONE, UPSTREAM, Case, Patch, edit

CONFLICT = next(c for c in CASES if c.name == "the same fix in other words")
MOVED = next(c for c in CASES if c.name == "lines are added above")
_CONFIG = edit(CONFIG, "config_018 = 18\n", "config_018 = 180\n")


def _trees(workshop: Workshop, *versions: str) -> list[list[tuple[str, str]]]:
    """Per pin: each patch's number and the tree that it gives."""
    locks = [read_lock(workshop.layout, version) for version in versions]
    return [[(patch.name[:4], patch.tree) for patch in lock.patch] for lock in locks]


def _applied(workshop: Workshop, version: str) -> Tree:
    return read_tree(apply(workshop.layout, find_pin(workshop.layout, version)).folder)


def _with_version(files: Tree, version: str) -> Tree:
    return files | {"vllm/_version.py": release_files(version)["vllm/_version.py"]}


def _resolve(workshop: Workshop, path: str, old: bytes, new: bytes, side: Tree) -> None:
    (tree_of(workshop.layout) / path).write_bytes(side[path].content.replace(old, new))


def test_two_in_a_row_with_a_drop_and_a_resolution(tmp_path: Path) -> None:
    """0102 is merged in 0.4.0, 0101 conflicts in 0.5.0; 0.2.0 and 0.3.0 keep what they have."""
    other = edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n")
    third = edit(ENGINE, "engine_070 = 70\n", "engine_070 = 7\n")
    case = Case(
        "in a row", (*ONE, Patch("0102", other), Patch("0103", third)), other, {}, None
    )  # fmt: skip
    workshop = checkout_of(case, tmp_path / "w")
    workshop.add_release("0.2.0", release_files("0.2.0"))
    workshop.refresh()
    before = _trees(workshop, "0.2.0", BASE)
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert _trees(workshop, "0.2.0", BASE) == before
    assert workshop.verify()
    assert workshop.refresh() == []

    newest = _with_version(CONFLICT.upstream(case.new_release()), "0.5.0")
    offer(workshop, newest, "0.5.0")
    before.append(_trees(workshop, UPSTREAM)[0])
    assert not command.begin(workshop.layout, "0.5.0", None, dry_run=False)
    _resolve(workshop, ENGINE, b"4 * 1000", b"4_000", newest)
    assert command.proceed(workshop.layout)
    assert _trees(workshop, "0.2.0", BASE, UPSTREAM) == before
    assert list(find_pin(workshop.layout, "0.5.0").skip) == ["0102"]
    right = third(edit(ENGINE, "4 * 1000", "4_000")(newest))
    assert _applied(workshop, "0.5.0") == right
    assert workshop.verify()
    assert workshop.refresh() == []

    # And back to a release that is older than all: what 0.5.0 has no need of is not there.
    offer(workshop, release_files("0.1.0"), "0.1.0")
    assert not command.begin(workshop.layout, "0.1.0", None, dry_run=False)
    _resolve(workshop, ENGINE, b"", b"", third(FIX(release_files("0.1.0"))))
    _resolve(workshop, ENGINE, b"engine_070 = 7\n", b"engine_070 = 70\n", _tree_here(workshop))
    assert not command.proceed(workshop.layout), "0.1.0 lacks what 0102 does, and 0.5.0 has"
    assert command.proceed(workshop.layout, accept=["0102"])
    skip = find_pin(workshop.layout, "0.1.0").skip
    assert "0.5.0" in skip["0102"]
    assert workshop.verify()
    assert workshop.refresh() == []


def _tree_here(workshop: Workshop) -> Tree:
    return read_tree(tree_of(workshop.layout))


def test_from_a_secondary_pin_with_texts_and_skips_of_its_own(tmp_path: Path) -> None:
    """The new pin takes over both; the common text does not serve it because FROM's does."""
    workshop = checkout_of(MOVED, tmp_path / "w")
    workshop.patch("0102", "Configure", (CONFIG, "config_018 = 18", "config_018 = 180"))
    workshop.patch("0103", "Only here", (ENGINE, "engine_070 = 70", "engine_070 = 7"))
    workshop.add_release("0.2.0", release_files("0.2.0"))
    workshop.skip("0.2.0", "0103", "this release has no such engine")
    workshop.refresh()
    own = workshop.layout.patches / "0.2.0"
    assert [p.name[:4] for p in own.iterdir()] == ["0102"]
    older = _with_version(release_files("0.2.0"), "0.1.0")
    offer(workshop, older, "0.1.0")
    assert command.begin(workshop.layout, "0.1.0", "0.2.0", dry_run=False)
    assert _applied(workshop, "0.1.0") == _CONFIG(FIX(older))
    assert find_pin(workshop.layout, "0.1.0").skip == {"0103": "this release has no such engine"}
    assert workshop.verify()
    assert workshop.refresh() == []


def test_a_text_that_a_refresh_wrote_for_an_older_pin(tmp_path: Path) -> None:
    """Its common text changes by a resolution: the refresh could not make it again."""
    upstream = edit(CONFIG, "config_018 = 18\n", "config_018 = 18 * 1\n")
    case = Case("", (Patch("0101", _CONFIG),), upstream, {}, None)
    workshop = checkout_of(case, tmp_path / "w")
    workshop.add_release("0.2.0", release_files("0.2.0"))
    workshop.refresh()
    assert read_lock(workshop.layout, "0.2.0").by_hand == ()
    assert list((workshop.layout.patches / "0.2.0").iterdir())
    before = _trees(workshop, "0.2.0", BASE)
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    _resolve(workshop, CONFIG, b"18 * 1", b"18 * 10", case.new_release())
    assert command.proceed(workshop.layout)
    assert _trees(workshop, "0.2.0", BASE) == before
    assert workshop.verify()
    assert workshop.refresh() == []
    assert _trees(workshop, "0.2.0", BASE) == before


def test_a_pin_that_a_person_added_and_that_has_no_lock(made: Make) -> None:
    """It is not "pinned already": nothing is committed that the result could be compared with."""
    workshop = made(MOVED)
    workshop.add_release(UPSTREAM, MOVED.new_release())
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert primary_pin(workshop.layout).version == UPSTREAM
    assert find_pin(workshop.layout, BASE).role is Role.SECONDARY
    assert workshop.verify()


def test_a_result_that_is_not_what_is_committed(made: Make) -> None:
    """A pinned TO: another tree than the lock's is no success."""
    workshop = made(MOVED)
    workshop.add_release(UPSTREAM, MOVED.new_release())
    workshop.refresh()
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    workshop.apply(UPSTREAM)
    workshop.replace(ENGINE, "engine_060 = 60", "engine_060 = 6", version=UPSTREAM)
    workshop.git("commit", "--quiet", "--all", "--amend", "--no-edit", version=UPSTREAM)
    workshop.refresh(UPSTREAM)
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)


@pytest.mark.parametrize("inside", ["repository", "other repository", "none"])
def test_where_the_checkout_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Names with blanks; in a repository of something else nothing is committed."""
    workshop = checkout_of(MOVED, tmp_path / "a place " / "w ")
    monkeypatch.setenv("HOME", str(tmp_path))
    outer = {"repository": workshop.root, "other repository": tmp_path}.get(inside)
    if outer:
        (outer / ".gitignore").write_text("build/\ncache/\n")
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "All")):
            run_git(outer, *arguments)
        run_git(outer, "config", "user.name", "A Person")
        run_git(outer, "config", "user.email", "person@example.org")
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    if outer:
        commits = run_git(outer, "log", "--format=%s").splitlines()
        assert len(commits) == (3 if inside == "repository" else 1)
    assert workshop.verify()


def test_without_a_name_for_commits(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = made(MOVED)
    monkeypatch.setenv("HOME", str(workshop.root))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    (workshop.root / ".gitignore").write_text("build/\n")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "All")):
        run_git(workshop.root, *arguments)
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert run_git(workshop.root, "log", "--format=%s").splitlines() == ["All"]
    assert "patches/pins/0.4.0.toml" in run_git(workshop.root, "status", "--porcelain", "-uall")


def test_two_at_once(made: Make) -> None:
    """The second waits, and finds that the series stands there already."""
    workshop = made(MOVED)
    codes = in_children(
        *(lambda: command.begin(workshop.layout, UPSTREAM, None, dry_run=False),) * 2
    )
    assert sorted(codes) == [0, 1]
    assert primary_pin(workshop.layout).version == UPSTREAM
    assert workshop.verify()
