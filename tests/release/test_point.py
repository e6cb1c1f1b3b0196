"""Which checkouts may be released, and which release came before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError
from rig.layout import Layout
from rig.release.point import Point, release_point
from tests.series.releases import PRIMARY
from tests.series.workshop import run_git

from .shop import Shop

FIRST, SECOND = f"v{PRIMARY}+rig.1", f"v{PRIMARY}+rig.2"


def point_of(shop: Shop) -> Point:
    return release_point(shop.layout)


def refusal(shop: Shop) -> str:
    with pytest.raises(RigError) as caught:
        point_of(shop)
    return str(caught.value)


def test_a_first_release(shop: Shop) -> None:
    point = point_of(shop)
    assert (point.version, point.tag, point.revision) == (FIRST[1:], FIRST, 1)
    assert point.commit == shop.head()
    assert point.tree == run_git(shop.root, "rev-parse", "HEAD^{tree}").strip()
    assert str(point.seconds) == run_git(shop.root, "log", "-1", "--format=%ct").strip()
    assert (point.tagged, point.previous) == (False, None)


@pytest.mark.parametrize("annotated", [True, False])
def test_a_tag_at_this_commit_is_this_release(shop: Shop, annotated: bool) -> None:
    before = point_of(shop)
    shop.tag(FIRST, annotated=annotated)
    point = point_of(shop)
    assert point.tagged
    assert point.previous is None  # it does not come before itself
    assert point.commit == before.commit


def test_a_tag_of_other_content_is_refused(shop: Shop) -> None:
    shop.tag(FIRST)
    (shop.root / "NOTICE").write_text("another notice\n")
    shop.save("Change")
    said = refusal(shop)
    assert f"the tag {FIRST} is that of other content" in said
    assert "write 2 into patches/revision" in said


def test_a_tag_of_the_same_content_at_another_commit_is_refused(shop: Shop) -> None:
    shop.tag(FIRST)
    shop.save("Nothing")
    said = refusal(shop)
    assert "another commit with the same content" in said
    assert f"git checkout {FIRST}" in said


def test_a_revision_that_another_vllm_release_used_is_refused(shop: Shop) -> None:
    """The wheels of the secondary pins would have the same names and other content."""
    shop.tag("v0.2.0+rig.1")
    shop.save("Onwards")
    said = refusal(shop)
    assert "revision 1 was used: v0.2.0+rig.1 is released" in said
    assert "write 2 there" in said


def test_the_highest_revision_before_is_the_last_release_by_number_not_by_name(shop: Shop) -> None:
    shop.layout.revision.write_text("9\n")
    nine = shop.save("Nine")
    shop.tag(f"v{PRIMARY}+rig.9")
    shop.layout.revision.write_text("10\n")
    ten = shop.save("Ten")
    shop.tag(f"v{PRIMARY}+rig.10")
    shop.revision(11)
    point = point_of(shop)
    assert point.previous is not None
    assert (point.previous.name, point.previous.commit) == (f"v{PRIMARY}+rig.10", ten)
    run_git(shop.root, "checkout", "--quiet", f"v{PRIMARY}+rig.10")
    point = point_of(shop)  # an old release is made again although newer ones are there
    assert point.previous is not None and point.previous.commit == nine


def test_a_release_on_another_branch_does_not_come_before(shop: Shop) -> None:
    shop.tag(FIRST)
    run_git(shop.root, "checkout", "--quiet", "-b", "other")
    shop.revision(2)
    shop.tag(SECOND)
    run_git(shop.root, "checkout", "--quiet", "main")
    shop.revision(3)
    point = point_of(shop)
    assert point.previous is not None and point.previous.name == FIRST


@pytest.mark.parametrize("name", ["v0.3.0", "v0.3.0+rig.x", "v0.3.0+rig.0", "v0.3.0+rig.1.cpu"])
def test_other_tags_are_no_releases(shop: Shop, name: str) -> None:
    shop.tag(name)
    shop.save("Onwards")
    assert point_of(shop).previous is None


@pytest.mark.parametrize("path", ["patches/series", "a new file", "patches/0301-new.patch"])
def test_what_is_not_committed_is_refused(shop: Shop, path: str) -> None:
    with (shop.root / path).open("a") as file:
        file.write("# more\n")
    said = refusal(shop)
    assert "holds what is not committed" in said
    assert path in said


def test_staged_and_deleted_files_are_refused(shop: Shop) -> None:
    (shop.root / "NOTICE").unlink()
    (shop.root / "LICENSE").write_text("other\n")
    run_git(shop.root, "add", "LICENSE")
    said = refusal(shop)
    assert "NOTICE" in said and "LICENSE" in said


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_does_not_look_at_is_refused(shop: Shop, flag: str) -> None:
    run_git(shop.root, "update-index", flag, "NOTICE")
    assert "hidden from git: NOTICE" in refusal(shop)


def test_a_file_that_only_the_user_ignores_is_refused(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored = tmp_path / "ignored"
    ignored.write_text("*.secret\n")
    config = tmp_path / "config"
    config.write_text(f"[core]\n\texcludesFile = {ignored}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    (shop.root / "a.secret").write_text("x")
    assert "a.secret" in refusal(shop)


def test_a_shallow_clone_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.save("Onwards")
    address = f"file://{shop.root}"
    run_git(tmp_path, "clone", "--quiet", "--depth=1", address, "shallow")
    layout = Layout(tmp_path / "shallow", shop.cache)
    with pytest.raises(RigError, match="shallow") as caught:
        release_point(layout)
    assert "git fetch --unshallow --tags" in str(caught.value)


def test_an_unpacked_archive_is_refused(shop: Shop) -> None:
    (shop.root / ".git").rename(shop.root.parent / "git")
    assert "no git checkout with a commit" in refusal(shop)


def test_a_repository_without_a_commit_is_refused(shop: Shop) -> None:
    (shop.root / ".git").rename(shop.root.parent / "git")
    run_git(shop.root, "init", "--quiet")
    assert "no git checkout with a commit" in refusal(shop)


@pytest.mark.parametrize("text", ["", "0\n", "1.5\n", "four\n", "-1\n", "01\n"])
def test_a_revision_that_is_no_number_is_refused(shop: Shop, text: str) -> None:
    shop.layout.revision.write_text(text)
    shop.save("Odd")
    assert "the revision must be one whole number" in refusal(shop)
