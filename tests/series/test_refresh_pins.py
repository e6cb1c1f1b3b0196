"""Secondary pins: the common text wherever it serves, a text of their own only where it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError

from .releases import PRIMARY, SECOND, THIRD, message, release_files
from .test_refresh import refused, series
from .workshop import Workshop, run_git

MOVED = ("vllm/engine.py", "engine_070 = 70", "engine_070 = 7")  # other line numbers there
NEAR = ("vllm/config.py", "config_018 = 18", "config_018 = 1")  # other context there
CONFLICT = ("vllm/config.py", "config_020 = 20", "config_020 = 2")  # that line differs there
NAME = "0301-third.patch"


def override(workshop: Workshop, version: str = SECOND, name: str = NAME) -> Path:
    return workshop.layout.patches / version / name


def test_moved_context_needs_no_own_text(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", MOVED)
    two_patches.refresh()
    assert not override(two_patches).exists()
    assert "engine_070 = 7\n" in (two_patches.apply(SECOND) / "vllm/engine.py").read_text()
    two_patches.verify()


def test_changed_context_gets_an_own_text_and_loses_it_again(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", NEAR)
    said = two_patches.refresh()
    assert f"written  patches/{SECOND}/{NAME}" in said
    assert "as it was before" in override(two_patches).read_text()
    text = (two_patches.apply(SECOND) / "vllm/config.py").read_text()
    assert "config_018 = 1\n" in text
    assert "config_020 = 'as it was before'\n" in text
    two_patches.verify()
    assert two_patches.refresh() == []
    two_patches.git("reset", "--quiet", "--hard", "HEAD~1")
    two_patches.patch("0301", "Third", MOVED)
    assert f"removed  patches/{SECOND}/{NAME}" in two_patches.refresh()
    assert not override(two_patches).parent.exists()
    two_patches.verify()


def test_an_own_text_follows_the_common_one(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", NEAR)
    two_patches.refresh()
    two_patches.replace("vllm/config.py", "config_018 = 1\n", "config_018 = 111\n")
    two_patches.git("commit", "--quiet", "--all", "--amend", "--no-edit")
    two_patches.refresh()
    assert "config_018 = 111" in (two_patches.apply(SECOND) / "vllm/config.py").read_text()
    two_patches.git("commit", "--quiet", "--amend", "-m", message("0301", "New name"))
    two_patches.refresh()
    assert not override(two_patches).exists()
    assert override(two_patches, name="0301-new-name.patch").is_file()
    two_patches.git("reset", "--quiet", "--hard", "HEAD~1")
    two_patches.refresh()
    assert not override(two_patches).parent.exists()
    two_patches.verify()


def test_a_conflict_writes_nothing_and_names_the_patch(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", CONFLICT)
    error = refused(two_patches)
    assert "'Third' conflicts with vLLM 0.2.0" in error.what
    assert "as it was before" in str(error.detail)
    assert "config_020 = 2" in str(error.detail)
    assert "skip" in str(error.next_step)


def test_a_conflict_is_solved_by_skipping(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", CONFLICT)
    two_patches.skip(SECOND, "0301", "vLLM 0.2.0 does not need it")
    two_patches.refresh()
    assert series(two_patches)[-1] == NAME
    tree = two_patches.apply(SECOND)
    assert run_git(tree, "log", "-1", "--format=%s") == "[Config] Configure\n"
    assert len(two_patches.verify()) >= 7
    assert two_patches.refresh() == []


def test_a_skipped_patch_in_the_middle(two_patches: Workshop) -> None:
    two_patches.skip(SECOND, "0101", "vLLM 0.2.0 does not need it")
    two_patches.patch("0301", "Third", MOVED)
    two_patches.refresh()
    log = run_git(two_patches.apply(SECOND), "log", "--format=%s").splitlines()
    assert log[:2] == ["Third", "[Config] Configure"]
    assert "engine_040 = 40\n" in (two_patches.tree(SECOND) / "vllm/engine.py").read_text()
    two_patches.verify()


def test_a_patch_that_needs_a_skipped_one(two_patches: Workshop) -> None:
    two_patches.skip(SECOND, "0101", "vLLM 0.2.0 does not need it")
    two_patches.patch("0301", "Third", ("vllm/engine.py", "engine_040 = 4\n", "engine_040 = 5\n"))
    error = refused(two_patches)
    assert "'Third' conflicts with vLLM 0.2.0" in error.what


def test_a_patch_that_requires_a_skipped_one(two_patches: Workshop) -> None:
    two_patches.skip(SECOND, "0101", "vLLM 0.2.0 does not need it")
    two_patches.replace(*MOVED)
    two_patches.commit(message("0301", "Third", Requires="0101"))
    assert "requires 0101, which vLLM 0.2.0 does not carry" in refused(two_patches).what


def test_the_primary_pin_skips_what_its_tree_carries(two_patches: Workshop) -> None:
    two_patches.skip(PRIMARY, "0101", "merged upstream in 0.3.0")
    error = refused(two_patches)
    assert "skips 0101-run-the-engine.patch, but its tree carries it" in error.what


def test_skipping_what_does_not_exist(two_patches: Workshop) -> None:
    two_patches.skip(SECOND, "0999", "there is no such patch")
    with pytest.raises(RigError, match="skips patch 0999, which the series does not have"):
        two_patches.apply(SECOND)


def test_a_change_that_the_other_release_has_already(tmp_path: Path) -> None:
    releases = {v: release_files(v) for v in (PRIMARY, SECOND)}
    old = releases[SECOND]["vllm/engine.py"]
    releases[SECOND]["vllm/engine.py"] = type(old)(
        old.content.replace(b"engine_040 = 40\n", b"engine_040 = 4\n")
    )
    workshop = Workshop(tmp_path, releases)
    workshop.start()
    workshop.patch("0101", "Run", ("vllm/engine.py", "engine_040 = 40", "engine_040 = 4"))
    error = refused(workshop)
    assert "vLLM 0.2.0" in str(error)
    assert "'Run'" in str(error)
    assert "skip" in str(error.next_step)


def test_three_pins(tmp_path: Path) -> None:
    releases = {v: release_files(v) for v in (PRIMARY, SECOND, THIRD)}
    workshop = Workshop(tmp_path, releases).with_two_patches()
    workshop.patch("0301", "Third", NEAR)
    workshop.skip(THIRD, "0301", "vLLM 0.1.0 does not need it")
    workshop.refresh()
    assert override(workshop).is_file()
    assert not override(workshop, THIRD).exists()
    workshop.verify()


# --- a text made by hand --------------------------------------------------------------------


def by_hand(workshop: Workshop) -> None:
    """The other release needs another change: a person makes it in that tree."""
    workshop.patch("0301", "Third", MOVED)
    workshop.refresh()
    workshop.apply(SECOND)
    workshop.replace("vllm/engine.py", "engine_070 = 7\n", "engine_070 = 'other'\n", SECOND)
    workshop.git("commit", "--quiet", "--all", "--amend", "--no-edit", version=SECOND)
    assert f"written  patches/{SECOND}/{NAME}" in workshop.refresh(SECOND)


def test_a_text_made_by_hand_stays(two_patches: Workshop) -> None:
    by_hand(two_patches)
    own = override(two_patches).read_bytes()
    two_patches.verify()
    assert two_patches.refresh() == []
    two_patches.patch("0401", "Fourth", ("vllm/engine.py", "engine_030 = 30", "engine_030 = 3"))
    two_patches.refresh()
    assert override(two_patches).read_bytes() == own
    assert "'other'" in (two_patches.apply(SECOND) / "vllm/engine.py").read_text()
    assert two_patches.refresh(SECOND) == []
    two_patches.verify()


def test_a_text_made_by_hand_solves_a_conflict(two_patches: Workshop) -> None:
    """The way that the conflict's own message names."""
    two_patches.skip(SECOND, "0301", "not carried yet, see below")
    two_patches.patch("0301", "Third", CONFLICT)
    two_patches.refresh()
    two_patches.apply(SECOND)
    pin = two_patches.layout.pins / f"{SECOND}.toml"
    pin.write_text(pin.read_text().split("[skip]")[0])
    two_patches.replace("vllm/config.py", "'as it was before'", "2", SECOND)
    two_patches.commit(message("0301", "Third"), SECOND)
    two_patches.refresh(SECOND)
    assert override(two_patches).is_file()
    two_patches.verify()
    assert two_patches.refresh() == []
    two_patches.patch("0401", "Fourth", ("vllm/engine.py", "engine_030 = 30", "engine_030 = 3"))
    two_patches.refresh()
    two_patches.verify()


def test_a_new_patch_that_conflicts_is_made_by_hand_first(two_patches: Workshop) -> None:
    """The way that the conflict's own message names, step by step."""
    two_patches.patch("0301", "Third", CONFLICT)
    before = two_patches.patch_files()
    assert f"./rig apply {SECOND}" in str(refused(two_patches).next_step)
    assert two_patches.patch_files() == before
    two_patches.apply(SECOND)
    two_patches.replace("vllm/config.py", "'as it was before'", "2", SECOND)
    two_patches.commit(message("0301", "Third"), SECOND)
    assert f"written  patches/{SECOND}/{NAME}" in two_patches.refresh(SECOND)
    two_patches.refresh()
    two_patches.verify()
    assert two_patches.refresh() == []


def test_a_secondary_tree_must_carry_the_series(two_patches: Workshop) -> None:
    two_patches.apply(SECOND)
    two_patches.git("reset", "--quiet", "--hard", "HEAD~1", version=SECOND)
    assert "patches missing in this tree: 0201" in refused(two_patches, SECOND).what
    two_patches.apply(SECOND)
    two_patches.replace(*MOVED, version=SECOND)
    two_patches.commit(message("0301", "Third"), SECOND)
    error = refused(two_patches, SECOND)
    assert "not for this pin: 0301" in error.what
    assert "primary" in str(error.next_step)


def test_a_new_pin_gets_its_lock(two_patches: Workshop) -> None:
    two_patches.add_release(THIRD, release_files(THIRD))
    assert "written  patches/pins/0.1.0.lock" in two_patches.refresh()
    two_patches.apply(THIRD)
    two_patches.verify(THIRD)
