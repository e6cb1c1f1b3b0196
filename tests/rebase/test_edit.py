"""A patch that is stopped at although it does not conflict, so that a person can edit it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError
from rig.pins import find_pin, primary_pin
from rig.rebase import command
from rig.rebase.state import read_state, tree_of
from rig.series.apply import apply
from tests.series.releases import Tree
from tests.series.workshop import Workshop, run_git

from .conftest import checkout_of, read_tree
from .corpus import ABOVE, BASE, CASES, CONFIG, ENGINE, FIX, UPSTREAM, Case, Patch, both, edit, put

_CONFIG = edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n")
_THREE = (
    Patch("0101", FIX),
    Patch("0102", _CONFIG),
    Patch("0103", put("vllm/third.py", "third = 3\n")),
)
_EDITED = edit(CONFIG, "config_005 = 50\n", "config_005 = 500\n")
PLAIN = Case("edited", _THREE, ABOVE, {}, None)
CONFLICT = Case(
    "edited, and a conflict",
    _THREE,
    next(c for c in CASES if c.name == "the same fix in other words").upstream,
    {},
    None,
)


def _begun(case: Case, folder: Path, *numbers: str) -> tuple[Workshop, Path]:
    workshop = checkout_of(case, folder / "w")
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False, edit=numbers)
    return workshop, tree_of(workshop.layout)


def _stopped_at(workshop: Workshop) -> str | None:
    state = read_state(workshop.layout)
    assert state is not None
    return state.stopped_at


def _applied(workshop: Workshop) -> Tree:
    return read_tree(apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder)


def _write(tree: Path, files: Tree) -> None:
    (tree / CONFIG).write_bytes(files[CONFIG].content)


@pytest.mark.parametrize("how", ["left in the work tree", "amended", "git rebase --continue"])
def test_an_edit_is_the_text_of_its_patch(tmp_path: Path, how: str) -> None:
    workshop, tree = _begun(PLAIN, tmp_path, "0102")
    assert _stopped_at(workshop) == "0102"
    before = read_tree(tree)
    assert before == both(FIX, _CONFIG)(PLAIN.new_release()), "0103 is not there yet"
    _write(tree, _EDITED(before))
    if how != "left in the work tree":
        run_git(tree, "commit", "--quiet", "--all", "--amend", "--no-edit")
    if how == "git rebase --continue":
        run_git(tree, "rebase", "--continue")
    assert command.proceed(workshop.layout)
    right = both(FIX, _CONFIG, _EDITED, put("vllm/third.py", "third = 3\n"))
    assert _applied(workshop) == right(PLAIN.new_release())
    text = next((workshop.root / "patches").glob("0102-*.patch")).read_text()
    assert "+config_005 = 500" in text
    assert workshop.verify()
    # The old pin keeps its own.
    apply(workshop.layout, find_pin(workshop.layout, BASE))
    assert b"config_005 = 50\n" in (workshop.tree(BASE) / CONFIG).read_bytes()


def test_an_edit_is_kept_over_the_runs_that_follow(tmp_path: Path) -> None:
    """A conflict before it, one that is forgotten, and a second edit."""
    workshop, tree = _begun(CONFLICT, tmp_path, "0102", "0103")
    assert _stopped_at(workshop) == "0101"
    text = (CONFLICT.new_release()[ENGINE].content).replace(b"4 * 1000", b"4_000")
    (tree / ENGINE).write_bytes(text)
    assert not command.proceed(workshop.layout)
    assert _stopped_at(workshop) == "0102"
    _write(tree, _EDITED(read_tree(tree)))
    assert not command.proceed(workshop.layout)
    assert _stopped_at(workshop) == "0103"
    assert b"config_005 = 500\n" in (tree / CONFIG).read_bytes()
    assert not command.proceed(workshop.layout, forgotten=["0102"])
    assert _stopped_at(workshop) == "0102"
    assert b"config_005 = 50\n" in (tree / CONFIG).read_bytes()
    _write(tree, _EDITED(read_tree(tree)))
    assert command.proceed(workshop.layout)
    applied = _applied(workshop)
    assert b"config_005 = 500\n" in applied[CONFIG].content
    assert b"4_000" in applied[ENGINE].content
    assert applied["vllm/third.py"].content == b"third = 3\n"


def test_an_edit_that_changes_nothing(tmp_path: Path) -> None:
    workshop, _ = _begun(PLAIN, tmp_path, "0102")
    assert command.proceed(workshop.layout)
    assert b"config_005 = 50\n" in _applied(workshop)[CONFIG].content


def test_a_file_that_git_does_not_know_is_not_lost(tmp_path: Path) -> None:
    workshop, tree = _begun(PLAIN, tmp_path, "0102")
    (tree / "vllm/new.py").write_text("new = 1\n")
    with pytest.raises(RigError, match="files in the tree that git does not know"):
        command.proceed(workshop.layout)
    run_git(tree, "add", "vllm/new.py")
    assert command.proceed(workshop.layout)
    assert _applied(workshop)["vllm/new.py"].content == b"new = 1\n"


def test_an_edit_is_asked_for_later(tmp_path: Path) -> None:
    workshop, tree = _begun(CONFLICT, tmp_path)
    text = (CONFLICT.new_release()[ENGINE].content).replace(b"4 * 1000", b"4_000")
    (tree / ENGINE).write_bytes(text)
    assert not command.proceed(workshop.layout, edit=["0102"])
    assert _stopped_at(workshop) == "0102"
    assert command.proceed(workshop.layout, drop={"0102": "nobody needs it any more"})
    assert b"config_005 = 5\n" in _applied(workshop)[CONFIG].content


def test_what_cannot_be_edited(tmp_path: Path) -> None:
    merged = Case("merged", _THREE, both(ABOVE, _CONFIG), {}, None)
    workshop = checkout_of(merged, tmp_path / "w")
    layout = workshop.layout
    with pytest.raises(RigError, match="the series has no patch 0999") as raised:
        command.begin(layout, UPSTREAM, None, dry_run=False, edit=["0999"])
    assert "0101, 0102, 0103" in str(raised.value)
    assert read_state(layout) is None
    with pytest.raises(RigError, match="dry run"):
        command.begin(layout, UPSTREAM, None, dry_run=True, edit=["0102"])
    with pytest.raises(RigError, match="0102 cannot be edited"):
        command.begin(layout, UPSTREAM, None, dry_run=False, edit=["0102"])
    # What cannot be is not asked for again.
    assert command.proceed(layout)
    assert primary_pin(layout).version == UPSTREAM


def test_one_that_is_dropped_cannot_be_edited(tmp_path: Path) -> None:
    workshop, _ = _begun(PLAIN, tmp_path, "0103")
    with pytest.raises(RigError, match="0102 cannot be edited") as raised:
        command.proceed(workshop.layout, edit=["0102"], drop={"0102": "nobody needs it now"})
    assert "nobody needs it now" in str(raised.value)


def test_an_edit_of_what_is_answered_already_is_not_passed_over(tmp_path: Path) -> None:
    workshop, tree = _begun(PLAIN, tmp_path, "0102", "0103")
    _write(tree, _EDITED(read_tree(tree)))
    assert not command.proceed(workshop.layout)
    assert _stopped_at(workshop) == "0103"
    with pytest.raises(RigError, match="0102 is answered already") as raised:
        command.proceed(workshop.layout, edit=["0102"])
    assert "--forget 0102 --edit 0102" in str(raised.value)
    assert not command.proceed(workshop.layout, forgotten=["0102"], edit=["0102"])
    assert _stopped_at(workshop) == "0102"
    # What began it may be said again: it goes on.
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False, edit=["0102", "0103"])


def test_an_edit_that_git_went_past_in_the_tree_can_be_made(tmp_path: Path) -> None:
    workshop, tree = _begun(PLAIN, tmp_path, "0101")
    run_git(tree, "rebase", "--continue")
    with pytest.raises(RigError, match="0102 is answered already"):
        command.proceed(workshop.layout, edit=["0102"])
    assert not command.proceed(workshop.layout, forgotten=["0102"], edit=["0102"])
    assert _stopped_at(workshop) == "0102"


def test_a_message_that_was_amended_is_kept_with_what_is_edited_later(tmp_path: Path) -> None:
    workshop, tree = _begun(PLAIN, tmp_path, "0102")
    said = run_git(tree, "log", "-1", "--format=%B").replace(
        "Rig-Number", "Because of it.\n\nRig-Number", 1
    )
    run_git(tree, "commit", "--quiet", "--amend", "--file=-", stdin=said.encode())
    _write(tree, _EDITED(read_tree(tree)))
    assert command.proceed(workshop.layout)
    text = next((workshop.root / "patches").glob("0102-*.patch")).read_text()
    assert "+config_005 = 500" in text
    assert "Because of it." in text


def test_a_second_commit_of_one_patch_is_not_lost(tmp_path: Path) -> None:
    workshop, tree = _begun(PLAIN, tmp_path, "0102")
    _write(tree, _EDITED(read_tree(tree)))
    run_git(tree, "commit", "--quiet", "--all", "-C", "HEAD")
    with pytest.raises(RigError, match="two commits of the patch 0102"):
        command.proceed(workshop.layout)
    run_git(tree, "reset", "--quiet", "--soft", "HEAD^")
    assert command.proceed(workshop.layout)
    assert b"config_005 = 500\n" in _applied(workshop)[CONFIG].content


def test_what_is_decided_too_late_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop, _ = _begun(PLAIN, tmp_path, "0102")
    with monkeypatch.context() as patched:
        patched.setattr(command, "_deliver", lambda *_, **__: False)
        command.proceed(workshop.layout)
    for late in ({"edit": ["0103"]}, {"drop": {"0103": "not needed"}}, {"accept": ["0103"]}):
        with pytest.raises(RigError, match="being written"):
            command.proceed(workshop.layout, **late)
    with pytest.raises(RigError, match="being written"):
        command.begin(workshop.layout, UPSTREAM, None, dry_run=False, edit=["0103"])
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False, edit=["0102"])
    assert primary_pin(workshop.layout).version == UPSTREAM
