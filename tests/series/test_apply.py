"""`rig apply`: one commit per patch, proven by the lock, the same everywhere."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from rig.errors import RigError

from .conftest import reopen
from .releases import (
    PRIMARY,
    SECOND,
    TWIN_DISTANCE,
    Entry,
    commit_of,
    lines,
    message,
    release_files,
    text,
    twins,
)
from .workshop import AUTHOR, Workshop, run_git


def refused(workshop: Workshop, version: str = PRIMARY) -> RigError:
    with pytest.raises(RigError) as caught:
        workshop.apply(version)
    assert caught.value.next_step, str(caught.value)
    assert workshop.leftovers() == []
    return caught.value


def test_one_commit_a_patch(two_patches: Workshop) -> None:
    tree = two_patches.apply(SECOND)
    log = run_git(tree, "log", "--reverse", "--format=%an <%ae>|%ad|%cn <%ce>|%s")
    release, first, second = log.splitlines()
    committer = "vllm-rig <vllm-rig@localhost>"
    date = "Tue Feb 3 04:05:06 2026 +0100"
    assert release.endswith(f"vLLM {SECOND}, commit {commit_of(SECOND)}, as released")
    assert first == f"{AUTHOR}|{date}|{committer}|Run the engine"
    assert second == f"{AUTHOR}|{date}|{committer}|[Config] Configure"
    assert run_git(tree, "status", "--porcelain", "--ignored") == ""
    assert run_git(tree, "rev-parse", "--abbrev-ref", "HEAD").strip() == "rig"
    assert (tree / "vllm/engine.py").read_text().count("engine_040 = 4\n") == 1
    assert (tree / "vllm/_version.py").is_file(), "vLLM's own .gitignore names this file"


def test_the_release_keeps_modes_links_and_names(workshop: Workshop) -> None:
    tree = workshop.start()
    files = run_git(tree, "-c", "core.quotePath=false", "ls-files", "--stage")
    listed = {row.split("\t")[1]: row.split(" ")[0] for row in files.splitlines()}
    assert listed == {path: e.mode for path, e in release_files(PRIMARY).items()}
    for path, entry in release_files(PRIMARY).items():
        if entry.mode != "120000":
            assert (tree / path).read_bytes() == entry.content


def test_a_second_run_does_nothing_and_says_so(two_patches: Workshop) -> None:
    first = two_patches.command_line("apply", SECOND).must_succeed()
    assert re.search(r"build/vllm-0\.2\.0: series [0-9a-f]{12} applied, 2 patches", first.stdout)
    assert "0101-run-the-engine.patch" in first.stderr
    before = {p: p.lstat().st_mtime_ns for p in two_patches.tree(SECOND).rglob("*")}
    again = two_patches.command_line("apply", SECOND).must_succeed()
    assert "is already applied" in again.stdout
    after = {p: p.lstat().st_mtime_ns for p in two_patches.tree(SECOND).rglob("*")}
    changed = {str(p) for p in before.keys() ^ after.keys()}
    changed |= {str(p) for p in before.keys() & after.keys() if before[p] != after[p]}
    assert all(".git" in p for p in changed)


def test_the_same_commits_in_every_checkout(two_patches: Workshop, tmp_path: Path) -> None:
    here = run_git(two_patches.apply(SECOND), "rev-parse", "HEAD")
    elsewhere = tmp_path / "ein anderer Ördner [1] $HOME"
    shutil.copytree(two_patches.root.parent, elsewhere, symlinks=True)
    other = reopen(elsewhere)
    shutil.rmtree(other.layout.build)
    assert run_git(other.apply(SECOND), "rev-parse", "HEAD") == here
    assert run_git(other.apply(PRIMARY), "rev-parse", "HEAD") == two_patches.git(
        "rev-parse", "HEAD"
    )


@pytest.mark.parametrize("mask", ["000", "022", "077"])
def test_a_users_umask_changes_nothing(two_patches: Workshop, mask: str) -> None:
    old = os.umask(int(mask, 8))
    try:
        tree = two_patches.apply(SECOND)
    finally:
        os.umask(old)
    lock = tomllib.loads(two_patches.layout.lock(SECOND).read_text())
    assert run_git(tree, "rev-parse", "HEAD^{tree}").strip() == lock["final"]
    assert run_git(tree, "status", "--porcelain") == ""
    assert os.access(tree / "tools/run.sh", os.X_OK)


def test_a_new_series_replaces_an_old_tree(two_patches: Workshop) -> None:
    two_patches.apply(SECOND)
    two_patches.patch("0301", "Third", ("vllm/engine.py", "engine_070 = 70", "engine_070 = 7"))
    two_patches.refresh()
    tree = two_patches.apply(SECOND)
    assert run_git(tree, "log", "-1", "--format=%s").strip() == "Third"
    assert two_patches.saved(SECOND) == []
    assert two_patches.leftovers() == []


# --- patches that do not fit ----------------------------------------------------------------


def test_a_patch_that_no_longer_applies(tmp_path: Path) -> None:
    """The release lost the line that the patch changes: patch, file and both sides are named."""
    new = release_files(PRIMARY)
    old = Workshop(tmp_path / "old", {PRIMARY: new}).with_two_patches()
    rows = lines("engine", 80)
    rows[38:41] = ["engine_039 = 39", "engine_040 = compute(40)", "engine_041 = 41"]
    moved = Workshop(tmp_path / "moved", {PRIMARY: {**new, "vllm/engine.py": text(rows)}})
    moved.start()
    shutil.rmtree(moved.tree())
    for name, content in old.patch_files().items():
        if not name.startswith("pins"):
            (moved.layout.patches / name).write_bytes(content)
    error = refused(moved)
    assert "0101-run-the-engine.patch does not apply" in error.what
    detail = str(error.detail)
    assert "0101-run-the-engine.patch: vllm/engine.py: hunk 1 of 1 does not fit" in detail
    assert "-engine_040 = 40\n+engine_040 = 4" in detail
    assert "40 engine_040 = compute(40)" in detail
    assert not moved.tree().exists()


def test_a_patched_file_that_is_gone(tmp_path: Path) -> None:
    new = release_files(PRIMARY)
    old = Workshop(tmp_path / "old", {PRIMARY: new}).with_two_patches()
    without = {k: v for k, v in new.items() if k != "vllm/engine.py"}
    moved = Workshop(
        tmp_path / "moved", {PRIMARY: {**without, "tests/test_config.py": Entry(b"1")}}
    )
    moved.start()
    shutil.rmtree(moved.tree())
    for name, content in old.patch_files().items():
        if not name.startswith("pins"):
            (moved.layout.patches / name).write_bytes(content)
    assert "vllm/engine.py: the patch changes this file, but it is not there" in str(
        refused(moved).detail
    )
    (moved.layout.patches / "0101-run-the-engine.patch").unlink()
    moved.layout.series.write_text("0201-config-configure.patch\n")
    assert "tests/test_config.py: the patch adds this file, but it is already there" in str(
        refused(moved).detail
    )


def twin_checkout(folder: Path) -> Workshop:
    """A patch of the second of two equal functions; the other pin has lines inserted above."""
    releases = {v: {**release_files(v)} for v in (PRIMARY, SECOND)}
    releases[PRIMARY]["vllm/twins.py"] = twins()
    releases[SECOND]["vllm/twins.py"] = twins(above=TWIN_DISTANCE)
    workshop = Workshop(folder, releases)
    workshop.start()
    first, second, end = (workshop.tree() / "vllm/twins.py").read_text().split("check(value)")
    workshop.write("vllm/twins.py", f"{first}check(value){second}verify(value){end}")
    workshop.commit(message("0201", "Change the second twin"))
    return workshop


def changed_twin(tree: Path) -> str:
    """The name of the function that was changed."""
    before = (tree / "vllm/twins.py").read_text().split("verify(value)")[0]
    return str(re.findall(r"def (\w+)", before)[-1])


def test_git_am_is_drawn_to_the_twin(tmp_path: Path) -> None:
    """Why a lock is needed: the tool itself patches the other function and says nothing."""
    workshop = twin_checkout(tmp_path)
    patch = workshop.git("format-patch", "--stdout", "-1").encode()
    shutil.copytree(workshop.apply_unpatched(SECOND), tmp_path / "plain")
    run_git(tmp_path / "plain", "am", stdin=patch)
    assert changed_twin(tmp_path / "plain") == "first"


def test_a_twin_does_not_attract_a_hunk(tmp_path: Path) -> None:
    workshop = twin_checkout(tmp_path)
    workshop.refresh()
    override = workshop.layout.patches / SECOND / "0201-change-the-second-twin.patch"
    assert override.is_file(), "the common text would land in the wrong function"
    assert changed_twin(workshop.apply(PRIMARY)) == "second"
    assert changed_twin(workshop.apply(SECOND)) == "second"
    workshop.verify()
    # The common text alone, with the lock of the right place, is an error and not a wrong tree.
    shutil.rmtree(workshop.tree(SECOND))
    own = override.read_bytes()
    override.unlink()
    error = refused(workshop, SECOND)
    assert "0201-change-the-second-twin.patch does not do to vllm/twins.py" in error.what
    assert str(error.detail).count("+    verify(value)") == 2, "both hunks are shown"
    assert not workshop.tree(SECOND).exists()
    override.write_bytes(own)
    assert changed_twin(workshop.apply(SECOND)) == "second"


def test_a_twin_that_appears_above_with_the_next_release(tmp_path: Path) -> None:
    """A lock made for another text of the release does not let a misplaced hunk pass."""
    workshop = twin_checkout(tmp_path)
    workshop.refresh()
    workshop.layout.lock(SECOND).write_text(
        workshop.layout.lock(PRIMARY).read_text().replace(PRIMARY, SECOND)
    )
    assert "lock says" in refused(workshop, SECOND).what


# --- what is in the way ---------------------------------------------------------------------


def test_a_damaged_sdist_in_the_cache_is_found(two_patches: Workshop) -> None:
    for sdist in two_patches.cache.rglob("*.tar.gz"):
        sdist.write_bytes(sdist.read_bytes()[:-10])
    said = two_patches.command_line("apply", SECOND).must_fail()
    assert "does not match its digest" in said
    assert "cannot be reached" in said


def test_a_pin_with_the_wrong_commit(workshop: Workshop) -> None:
    path = workshop.layout.pins / f"{PRIMARY}.toml"
    path.write_text(path.read_text().replace('commit = "', 'commit = "abc'))
    with pytest.raises(RigError, match="the pin says abc"):
        workshop.refresh()


@pytest.mark.parametrize("series", ["nonsense\n", "0101-x.patch\n0101-x.patch\n", "\xff"])
def test_a_wrong_series(two_patches: Workshop, series: str) -> None:
    two_patches.layout.series.write_bytes(series.encode("latin-1"))
    assert "patches/series" in str(refused(two_patches).where)


def test_a_missing_requirement(two_patches: Workshop) -> None:
    path = two_patches.layout.patches / "0201-config-configure.patch"
    path.write_text(path.read_text().replace("Requires: none", "Requires: 0105"))
    error = refused(two_patches, SECOND)
    assert "requires 0105" in error.what
    assert "0201-config-configure.patch" in str(error.where)


def test_build_is_a_file(two_patches: Workshop) -> None:
    shutil.rmtree(two_patches.layout.build)
    two_patches.layout.build.write_text("")
    assert "build" in two_patches.command_line("apply").must_fail()


def test_an_unknown_version_on_the_command_line(workshop: Workshop) -> None:
    said = workshop.command_line("apply", "0.2.9").must_fail()
    assert "vLLM 0.2.9 is not pinned" in said
    assert "nearest: 0.2.0" in said
