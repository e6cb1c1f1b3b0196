"""A whole rebase: pins, texts, locks and commits afterwards, and a person's part in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.pins import Role, find_pin, primary_pin
from rig.rebase import command
from rig.rebase.state import folder_of, read_state, tree_of
from rig.rebase.verdict import Verdict
from rig.series.apply import apply
from rig.series.lock import read_lock
from tests.series.releases import Entry, message, release_files
from tests.series.workshop import Workshop, run_git

from .conftest import Make, checkout_of, offer, read_tree
from .corpus import (
    BASE,
    CASES,
    CONFIG,
    ENGINE,
    FIX,
    ONE,
    UPSTREAM,
    Case,
    Patch,
    edit,
    nothing,
)

CONFLICT = next(c for c in CASES if c.name == "the same fix in other words")
MERGED = next(c for c in CASES if c.name == "merged as is")
DEPENDS = next(c for c in CASES if c.name == "a patch requires one that is merged")
PROBE = next(c for c in CASES if c.verdicts["0101"] is Verdict.PROBE_FAILED)
MOVED = next(c for c in CASES if c.name == "lines are added above")


def _repository(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the checkout itself a repository with everything committed, as a clone is."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "0")
    (workshop.root / ".gitignore").write_text("build/\n")
    for arguments in (("init", "--quiet"), ("add", "-A"), ("commit", "--quiet", "-m", "All")):
        run_git(workshop.root, *arguments)
    run_git(workshop.root, "config", "user.name", "A Person")
    run_git(workshop.root, "config", "user.email", "person@example.org")


def _subjects(workshop: Workshop) -> list[str]:
    return run_git(workshop.root, "log", "--format=%s", "--reverse").splitlines()[1:]


def test_a_newer_release_becomes_the_primary_pin(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = made(MOVED)
    _repository(workshop, monkeypatch)
    before = read_lock(workshop.layout, BASE)
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert primary_pin(workshop.layout).version == UPSTREAM
    assert find_pin(workshop.layout, BASE).role is Role.SECONDARY
    assert read_lock(workshop.layout, BASE).final == before.final
    tree = apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder
    assert read_tree(tree) == FIX(MOVED.new_release())
    assert _subjects(workshop) == [
        f"Pin vLLM {UPSTREAM}",
        f"Refresh the series: rebased from vLLM {BASE} to {UPSTREAM}",
    ]
    assert run_git(workshop.root, "status", "--porcelain") == ""
    assert not folder_of(workshop.layout).exists()
    assert workshop.verify()
    assert workshop.refresh() == []


def test_an_older_release_becomes_a_secondary_pin(made: Make) -> None:
    workshop = made(Case("", ONE, nothing, {}, None))
    older = release_files("0.1.0")
    offer(workshop, older, "0.1.0")
    common = workshop.patch_files()
    assert command.begin(workshop.layout, "0.1.0", None, dry_run=False)
    assert primary_pin(workshop.layout).version == BASE
    tree = apply(workshop.layout, find_pin(workshop.layout, "0.1.0")).folder
    assert read_tree(tree) == FIX(older)
    after = workshop.patch_files()
    assert {k: v for k, v in after.items() if "0.1.0" not in k} == common
    assert workshop.verify()


def test_a_conflict_waits_for_a_person(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = made(CONFLICT)
    _repository(workshop, monkeypatch)
    before = workshop.patch_files()
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert workshop.patch_files() == before
    engine = tree_of(workshop.layout) / ENGINE
    assert "<<<<<<<" in engine.read_text()
    with pytest.raises(RigError, match="not resolved"):
        command.proceed(workshop.layout)
    report = (workshop.layout.build / "rebase-report" / "report.md").read_text()
    assert "+engine_040 = 4 * 1000" in report or "engine_040 = 4 * 1000" in report
    assert "engine_040 = 4000" in report

    resolved = CONFLICT.new_release()[ENGINE].content.replace(b"4 * 1000", b"4_000")
    engine.write_bytes(resolved)
    assert command.proceed(workshop.layout)
    tree = apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder
    assert (tree / ENGINE).read_bytes() == resolved
    assert f"Resolve 0101 for vLLM {UPSTREAM}" in _subjects(workshop)
    old = apply(workshop.layout, find_pin(workshop.layout, BASE)).folder
    assert read_tree(old) == FIX(dict(CONFLICT.base))
    assert read_lock(workshop.layout, BASE).by_hand == ("0101",)
    assert workshop.verify()
    # A later refresh keeps both texts.
    assert workshop.refresh() == []


def test_an_answer_that_the_person_committed(made: Make) -> None:
    workshop = made(CONFLICT)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    tree = tree_of(workshop.layout)
    text = CONFLICT.new_release()[ENGINE].content.replace(b"4 * 1000", b"4_000")
    (tree / ENGINE).write_bytes(text)
    run_git(tree, "add", ENGINE)
    run_git(tree, "-c", "core.editor=true", "rebase", "--continue")
    assert command.proceed(workshop.layout)
    applied = apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder
    assert (applied / ENGINE).read_bytes() == text


def test_an_answer_that_changes_nothing(made: Make) -> None:
    workshop = made(CONFLICT)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    (tree_of(workshop.layout) / ENGINE).write_bytes(CONFLICT.new_release()[ENGINE].content)
    with pytest.raises(RigError, match="changes nothing") as raised:
        command.proceed(workshop.layout)
    assert "--drop 0101" in str(raised.value)
    assert command.proceed(workshop.layout, drop={"0101": "upstream has it in other words"})
    pin = find_pin(workshop.layout, UPSTREAM)
    assert pin.skip == {"0101": "upstream has it in other words"}
    assert workshop.verify()


def test_a_file_that_git_does_not_know(made: Make) -> None:
    workshop = made(CONFLICT)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    tree = tree_of(workshop.layout)
    (tree / ENGINE).write_text("engine_040 = 4_000\n")
    (tree / "notes.txt").write_text("what I thought\n")
    with pytest.raises(RigError, match="files in the tree that git does not know"):
        command.proceed(workshop.layout)
    run_git(tree, "add", "notes.txt")
    assert command.proceed(workshop.layout)
    applied = apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder
    assert (applied / "notes.txt").read_text() == "what I thought\n"


def test_what_upstream_has_is_dropped_and_kept_for_the_old_pin(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = made(MERGED)
    _repository(workshop, monkeypatch)
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    reason = find_pin(workshop.layout, UPSTREAM).skip["0101"]
    assert reason.startswith("merged upstream: all 1 lines that it adds are in vllm/engine.py")
    assert _subjects(workshop)[1] == f"Drop 0101 from vLLM {UPSTREAM} on"
    old = apply(workshop.layout, find_pin(workshop.layout, BASE)).folder
    assert read_tree(old) == FIX(dict(MERGED.base))
    assert workshop.verify()
    assert workshop.refresh() == []


def test_a_patch_that_something_requires_is_not_dropped_unasked(made: Make) -> None:
    workshop = made(DEPENDS)
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert find_pin(workshop.layout, None).version == BASE
    assert command.proceed(workshop.layout, drop={"0101": "merged upstream as it is"})
    pin = find_pin(workshop.layout, UPSTREAM)
    tree = apply(workshop.layout, pin).folder
    assert read_tree(tree) == edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n")(
        DEPENDS.new_release()
    )
    said = run_git(tree, "log", "-1", "--format=%B")
    assert "Requires: none" in said
    assert workshop.verify()


def test_a_failed_probe_waits_for_a_look(made: Make) -> None:
    workshop = made(PROBE)
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert not command.proceed(workshop.layout)
    assert command.proceed(workshop.layout, accept=["0101"])
    assert workshop.verify()


def test_a_dry_run_changes_nothing(made: Make) -> None:
    workshop = made(MOVED)
    before = read_tree(workshop.root / "patches")
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=True)
    assert read_tree(workshop.root / "patches") == before
    assert read_state(workshop.layout) is None
    report = json.loads((workshop.layout.build / "rebase-report" / "report.json").read_text())
    assert [j["verdict"] for j in report["judged"]] == ["moved"]
    assert [j["moved"] for j in report["judged"]] == [["vllm/engine.py: +2"]]


def test_a_dry_run_says_what_a_person_will_have_to_do(
    made: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop = made(CONFLICT)
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=True)
    said = f"a rebase to {UPSTREAM} would wait for you: 0101 (conflict)"
    assert said in " ".join(capsys.readouterr().out.split())


def test_abort_leaves_everything_as_it_was(made: Make) -> None:
    workshop = made(CONFLICT)
    before = read_tree(workshop.root / "patches")
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    command.abort(workshop.layout)
    assert read_tree(workshop.root / "patches") == before
    assert read_state(workshop.layout) is None
    with pytest.raises(RigError, match="no rebase is in progress"):
        command.abort(workshop.layout)
    with pytest.raises(RigError, match="no rebase is in progress"):
        command.proceed(workshop.layout)


def test_another_rebase_in_progress(made: Make) -> None:
    workshop = made(CONFLICT)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    offer(workshop, CONFLICT.new_release(), "0.5.0")
    with pytest.raises(RigError, match=r"a rebase from 0\.3\.0 to 0\.4\.0 is in progress"):
        command.begin(workshop.layout, "0.5.0", None, dry_run=False)


def test_uncommitted_patches(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = made(MOVED)
    _repository(workshop, monkeypatch)
    workshop.layout.revision.write_text("2\n")
    with pytest.raises(RigError, match="patches/ holds work that is not committed"):
        command.begin(workshop.layout, UPSTREAM, None, dry_run=False)


def test_the_release_that_it_stands_on(made: Make) -> None:
    workshop = made(MOVED)
    with pytest.raises(RigError, match=r"stands on it already"):
        command.begin(workshop.layout, BASE, None, dry_run=False)


def test_a_resolution_is_used_again_and_can_be_forgotten(tmp_path: Path) -> None:
    other = edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n")
    theirs = edit(CONFIG, "config_005 = 5\n", "config_005 = 5 * 10\n")
    case = Case(
        "two conflicts",
        (*ONE, Patch("0102", other)),
        lambda files: theirs(CONFLICT.upstream(files)),
        {},
        None,
    )
    workshop = checkout_of(case, tmp_path / "w")
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    tree = tree_of(workshop.layout)
    new = case.new_release()
    (tree / ENGINE).write_bytes(new[ENGINE].content.replace(b"4 * 1000", b"4_000"))
    assert not command.proceed(workshop.layout)  # the second one
    state = read_state(workshop.layout)
    assert state is not None and state.stopped_at == "0102"
    assert b"4_000" in (tree / ENGINE).read_bytes()
    with pytest.raises(RigError, match="no patch 0999"):
        command.proceed(workshop.layout, forgotten=["0999"])
    (tree / CONFIG).write_bytes(new[CONFIG].content.replace(b"5 * 10", b"5_0"))
    assert not command.proceed(workshop.layout, forgotten=["0101"])
    state = read_state(workshop.layout)
    assert state is not None and state.stopped_at == "0101"
    (tree / ENGINE).write_bytes(new[ENGINE].content.replace(b"4 * 1000", b"4_0_0_0"))
    assert command.proceed(workshop.layout)
    applied = read_tree(apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder)
    assert b"4_0_0_0" in applied[ENGINE].content
    assert applied[CONFIG] == Entry(new[CONFIG].content.replace(b"5 * 10", b"5_0"))


def test_a_third_pin_keeps_its_tree(tmp_path: Path) -> None:
    """Also where the new common text no longer serves it."""
    workshop = checkout_of(CONFLICT, tmp_path / "w")
    workshop.add_release("0.2.0", release_files("0.2.0"))
    workshop.refresh()
    before = read_lock(workshop.layout, "0.2.0")
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    text = CONFLICT.new_release()[ENGINE].content.replace(b"4 * 1000", b"4_000")
    (tree_of(workshop.layout) / ENGINE).write_bytes(text)
    assert command.proceed(workshop.layout)
    after = read_lock(workshop.layout, "0.2.0")
    assert [p.tree for p in after.patch] == [p.tree for p in before.patch]
    assert workshop.verify()


def test_the_way_there_and_back(made: Make) -> None:
    """Forward, then compared backward: the result is what is committed."""
    workshop = made(MOVED)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert command.begin(workshop.layout, BASE, None, dry_run=False)
    report = json.loads((workshop.layout.build / "rebase-report" / "report.json").read_text())
    assert "the result is the committed series of vLLM 0.3.0" in report["compared"]


def test_a_commit_that_the_person_gave_another_subject(made: Make) -> None:
    workshop = made(CONFLICT)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    tree = tree_of(workshop.layout)
    (tree / ENGINE).write_bytes(CONFLICT.new_release()[ENGINE].content.replace(b"4 *", b"5 *"))
    run_git(tree, "add", ENGINE)
    text = message("0101", "Another subject")
    run_git(tree, "commit", "--quiet", "--file=-", stdin=text.encode())
    with pytest.raises(RigError, match="another subject"):
        command.proceed(workshop.layout)
