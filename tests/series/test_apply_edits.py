"""A tree that somebody edited is never lost: apply refuses, and `--discard` moves it aside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rig.errors import RigError

from .releases import PRIMARY, message
from .workshop import Workshop, run_git, write_entry

Edit = Callable[[Workshop], object]


def _commit(workshop: Workshop) -> None:
    workshop.write("vllm/new.py", "mine = 1\n")
    workshop.commit(message("0301", "Mine"))


def _amend(workshop: Workshop) -> None:
    workshop.write("vllm/new.py", "mine = 1\n")
    workshop.git("add", "vllm/new.py")
    workshop.git("commit", "--quiet", "--amend", "--no-edit")


def _reword(workshop: Workshop) -> None:
    workshop.git("commit", "--quiet", "--amend", "-m", "another message")


def _other_branch(workshop: Workshop) -> None:
    workshop.git("checkout", "--quiet", "-b", "mine")
    _commit(workshop)
    workshop.git("checkout", "--quiet", "rig")


def _stash(workshop: Workshop) -> None:
    workshop.write("vllm/engine.py", "stashed = 1\n")
    workshop.git("stash", "push", "--quiet")


def _detached(workshop: Workshop) -> None:
    workshop.git("checkout", "--quiet", "--detach")
    _commit(workshop)


def _tag(workshop: Workshop) -> None:
    _commit(workshop)
    workshop.git("tag", "mine")
    workshop.git("reset", "--quiet", "--hard", "HEAD~1")


def _staged_only(workshop: Workshop) -> None:
    original = (workshop.tree() / "vllm/engine.py").read_bytes()
    workshop.write("vllm/engine.py", "staged = 1\n")
    workshop.git("add", "vllm/engine.py")
    workshop.write("vllm/engine.py", original)


def _excluded(workshop: Workshop) -> None:
    (workshop.tree() / ".git/info").mkdir(exist_ok=True)
    (workshop.tree() / ".git/info/exclude").write_text("notes.txt\n")
    workshop.write("notes.txt", "mine")


def _rebase(workshop: Workshop) -> None:
    """A rebase that stopped because its first commit conflicts."""
    workshop.git("checkout", "--quiet", "-b", "mine", "HEAD~1")
    workshop.write("vllm/config.py", "all = new\n")
    workshop.commit(message("0301", "Mine"))
    with pytest.raises(AssertionError):
        workshop.git("rebase", "rig")


EDITS: dict[str, Edit] = {
    "modified": lambda w: w.replace("vllm/engine.py", "engine_001 = 1", "engine_001 = 11"),
    "deleted": lambda w: w.write("vllm/engine.py", None),
    "mode": lambda w: (w.tree() / "vllm/engine.py").chmod(0o755),
    "untracked": lambda w: w.write("notes.txt", "mine"),
    "untracked in a new folder": lambda w: w.write("a/b/notes.txt", "mine"),
    "ignored file": lambda w: w.write("debug.log", "mine"),
    "ignored folder": lambda w: w.write("generated/code.py", "mine"),
    "staged": lambda w: (w.write("n.py", "mine"), w.git("add", "n.py")),
    "staged only": _staged_only,
    "commit": _commit,
    "amended": _amend,
    "reworded": _reword,
    "other branch": _other_branch,
    "tag": _tag,
    "stash": _stash,
    "detached": _detached,
    "rebase": _rebase,
    "link": lambda w: w.write("tools/link", None),
    "renamed": lambda w: w.git("mv", "vllm/engine.py", "vllm/motor.py"),
    "stat was hidden": lambda w: (
        w.git("update-index", "--assume-unchanged", "vllm/engine.py"),
        w.replace("vllm/engine.py", "engine_001 = 1", "engine_001 = 11"),
    ),
    "worktree was hidden": lambda w: (
        w.git("update-index", "--skip-worktree", "vllm/engine.py"),
        w.replace("vllm/engine.py", "engine_001 = 1", "engine_001 = 11"),
    ),
    "excluded": _excluded,
    "settings hide it": lambda w: (
        w.git("config", "status.showUntrackedFiles", "no"),
        w.git("config", "core.fileMode", "false"),
        w.git("config", "status.relativePaths", "true"),
        w.write("notes.txt", "mine"),
    ),
}


def snapshot(tree: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(tree)): p.read_bytes()
        for p in sorted(tree.rglob("*"))
        if p.is_file() and ".git" not in p.relative_to(tree).parts
    }


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_no_edit_is_lost(two_patches: Workshop, edit: Edit) -> None:
    tree = two_patches.apply()
    edit(two_patches)
    before, refs = snapshot(tree), run_git(tree, "for-each-ref")
    head = run_git(tree, "rev-parse", "HEAD")
    with pytest.raises(RigError) as caught:
        two_patches.apply()
    assert "holds work that is not in patches/" in caught.value.what
    assert "--discard" in str(caught.value.next_step)
    assert "make refresh" in str(caught.value.next_step)
    assert snapshot(tree) == before
    assert (run_git(tree, "for-each-ref"), run_git(tree, "rev-parse", "HEAD")) == (refs, head)
    # A series that changed in the meantime is no reason to throw it away.
    two_patches.layout.series.write_text("")
    with pytest.raises(RigError):
        two_patches.apply()
    assert snapshot(tree) == before


@pytest.mark.parametrize("name", ["modified", "ignored file", "commit", "stash", "rebase"])
def test_discard_keeps_the_tree_aside(two_patches: Workshop, name: str) -> None:
    tree = two_patches.apply()
    clean = snapshot(tree)
    for count in (1, 2):
        EDITS[name](two_patches)
        before, refs = snapshot(tree), run_git(tree, "for-each-ref")
        two_patches.apply(discard=True)
        assert snapshot(tree) == clean
        saved = two_patches.saved()
        assert len(saved) == count
        newest = max(saved, key=lambda p: p.stat().st_ctime_ns)
        assert (snapshot(newest), run_git(newest, "for-each-ref")) == (before, refs)
    assert two_patches.leftovers() == []


def test_the_command_line_says_what_it_found(two_patches: Workshop) -> None:
    two_patches.write("notes.txt", "mine")
    said = two_patches.command_line("apply").must_fail()
    assert "?? notes.txt" in said
    done = two_patches.command_line("apply", "--discard").must_succeed()
    assert "your edited tree is kept as build/vllm-0.3.0.saved-" in done.stderr


def test_discard_of_a_tree_without_edits_keeps_nothing(two_patches: Workshop) -> None:
    two_patches.apply(discard=True)
    assert two_patches.saved() == []


@pytest.mark.parametrize(
    "path", ["vllm/__pycache__/a.pyc", ".mypy_cache/x", "vllm/.ruff_cache/y", ".pytest_cache/z"]
)
def test_what_tools_leave_behind_is_no_edit(two_patches: Workshop, path: str) -> None:
    two_patches.write(path, "cache")
    two_patches.apply()
    two_patches.patch("0301", "Third", ("vllm/engine.py", "engine_070 = 70", "engine_070 = 7"))
    two_patches.refresh()
    two_patches.apply()
    assert two_patches.saved() == []


def test_a_commit_of_the_series_checked_out_is_no_edit(two_patches: Workshop) -> None:
    two_patches.git("checkout", "--quiet", "HEAD~1")
    tree = two_patches.apply()
    assert run_git(tree, "log", "-1", "--format=%s").strip() == "[Config] Configure"


@pytest.mark.parametrize("what", ["folder", "file", "repository of somebody"])
def test_what_apply_did_not_make_is_not_touched(workshop: Workshop, what: str) -> None:
    workshop.start()
    tree = workshop.tree()
    tree.rename(tree.with_name("vllm-elsewhere"))
    if what == "file":
        tree.write_text("mine")
    else:
        write_entry(tree / "mine.txt", "mine")
        if what != "folder":
            run_git(tree, "init", "--quiet")
    with pytest.raises(RigError, match="holds work that is not") as caught:
        workshop.apply()
    assert "was not made by `./rig apply`" in str(caught.value.where)
    workshop.apply(discard=True)
    saved = workshop.saved()[0]
    assert (saved if what == "file" else saved / "mine.txt").read_text() == "mine"


# --- a damaged repository -------------------------------------------------------------------


def _damage_objects(tree: Path) -> None:
    for item in (tree / ".git/objects").rglob("*"):
        if item.is_file():
            item.chmod(0o644)
            item.write_bytes(b"damaged")


def _damage_one_blob(tree: Path) -> None:
    blob = run_git(tree, "rev-parse", "HEAD:vllm/engine.py").strip()
    place = tree / ".git/objects" / blob[:2] / blob[2:]
    place.chmod(0o644)
    place.write_bytes(b"damaged")


def _damage_one_tree(tree: Path) -> None:
    name = run_git(tree, "rev-parse", "HEAD~1^{tree}").strip()
    (tree / ".git/objects" / name[:2] / name[2:]).unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "objects": _damage_objects,
    "one tree object": _damage_one_tree,
    "index": lambda t: (t / ".git/index").write_bytes(b"damaged"),
    "no index": lambda t: (t / ".git/index").unlink(),
    "HEAD": lambda t: (t / ".git/HEAD").write_bytes(b"damaged"),
    "no HEAD": lambda t: (t / ".git/HEAD").unlink(),
    "branch": lambda t: (t / ".git/refs/heads/rig").write_text("damaged"),
    "no branch": lambda t: (t / ".git/refs/heads/rig").unlink(),
    "stamp": lambda t: (t / ".git/rig-stamp.json").write_bytes(b"\xff"),
    "pristine": lambda t: (t / ".git/refs/rig/pristine").unlink(),
    "config": lambda t: (t / ".git/config").write_text("[[["),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_tree_is_a_clear_error(
    two_patches: Workshop, damage: Callable[[Path], object]
) -> None:
    run_git(two_patches.root, "init", "--quiet")  # a checkout is a repository: git must not climb
    two_patches.write("vllm/engine.py", "mine = 1\n")
    damage(two_patches.tree())
    for work in (two_patches.apply, two_patches.refresh):
        with pytest.raises(RigError) as caught:
            work()
        assert caught.value.next_step, str(caught.value)
    assert (two_patches.tree() / "vllm/engine.py").read_text() == "mine = 1\n"
    two_patches.apply(discard=True)
    assert (two_patches.saved()[0] / "vllm/engine.py").read_text() == "mine = 1\n"
    two_patches.apply(PRIMARY)


def test_a_damaged_tree_without_edits_heals(two_patches: Workshop) -> None:
    _damage_one_tree(two_patches.tree())
    run_git(two_patches.apply(), "fsck", "--full")
    assert two_patches.saved() == []
