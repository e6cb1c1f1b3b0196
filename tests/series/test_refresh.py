"""`rig refresh`: commits become patch files, and their bytes depend on the commits alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from rig.errors import RigError
from rig.series.series_text import series_text

from .releases import PRIMARY, SECOND, message
from .workshop import Workshop, run_git

THIRD_EDIT = ("vllm/engine.py", "engine_070 = 70", "engine_070 = 7")


def series(workshop: Workshop) -> list[str]:
    """The patches that the series names."""
    rows = workshop.layout.series.read_text().splitlines()
    return [row for row in rows if row and not row.startswith("#")]


def refused(workshop: Workshop, version: str | None = None) -> RigError:
    """Refresh must fail, and write nothing."""
    before = workshop.patch_files()
    with pytest.raises(RigError) as caught:
        workshop.refresh(version)
    assert caught.value.next_step, str(caught.value)
    assert workshop.patch_files() == before
    assert workshop.leftovers() == []
    return caught.value


# --- the series follows the commits ---------------------------------------------------------


def test_a_second_refresh_changes_nothing(two_patches: Workshop) -> None:
    before = two_patches.patch_files()
    assert two_patches.refresh() == []
    assert two_patches.patch_files() == before
    done = two_patches.command_line("refresh").must_succeed()
    assert "nothing changed" in done.stdout


def test_apply_then_refresh_gives_the_same_bytes(two_patches: Workshop) -> None:
    before = two_patches.patch_files()
    shutil.rmtree(two_patches.layout.build)
    two_patches.apply()
    assert two_patches.refresh() == []
    assert two_patches.patch_files() == before
    two_patches.apply(SECOND)
    assert two_patches.refresh(SECOND) == []
    assert two_patches.patch_files() == before


def test_without_a_tree_the_texts_are_taken(two_patches: Workshop) -> None:
    before = two_patches.patch_files()
    shutil.rmtree(two_patches.layout.build)
    two_patches.layout.lock(PRIMARY).unlink()
    two_patches.layout.lock(SECOND).unlink()
    two_patches.refresh()
    assert two_patches.patch_files() == before


def test_a_new_patch(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", THIRD_EDIT)
    said = two_patches.refresh()
    assert "written  patches/0301-third.patch" in said
    assert "written  patches/pins/0.2.0.lock" in said
    assert series(two_patches)[-1] == "0301-third.patch"
    assert "is already applied" in two_patches.command_line("apply").must_succeed().stdout
    two_patches.verify()


def test_an_amended_patch(two_patches: Workshop) -> None:
    two_patches.replace("vllm/config.py", "c_5 = 55", "c_5 = 555")
    two_patches.git("commit", "--quiet", "--all", "--amend", "--no-edit")
    said = two_patches.refresh()
    assert sorted(said) == [
        "written  patches/0201-config-configure.patch",
        "written  patches/pins/0.2.0.lock",
        "written  patches/pins/0.3.0.lock",
    ]
    two_patches.verify()


def test_only_the_message_changed(two_patches: Workshop) -> None:
    two_patches.git(
        "commit", "--quiet", "--amend", "-m", message("0201", "[Config] Configure", "X")
    )
    assert "written  patches/0201-config-configure.patch" in two_patches.refresh()
    two_patches.verify()
    assert two_patches.refresh() == []


def test_a_new_subject_renames_the_file(two_patches: Workshop) -> None:
    two_patches.git("commit", "--quiet", "--amend", "-m", message("0201", "Set it up"))
    said = two_patches.refresh()
    assert "removed  patches/0201-config-configure.patch" in said
    assert "written  patches/0201-set-it-up.patch" in said
    assert series(two_patches) == ["0101-run-the-engine.patch", "0201-set-it-up.patch"]
    two_patches.verify()


def test_a_new_number_renames_the_file(two_patches: Workshop) -> None:
    two_patches.git("commit", "--quiet", "--amend", "-m", message("0501", "[Config] Configure"))
    two_patches.refresh()
    assert series(two_patches) == ["0101-run-the-engine.patch", "0501-config-configure.patch"]
    assert "0201-config-configure.patch" not in two_patches.patch_files()


def test_dropped_patches(two_patches: Workshop) -> None:
    two_patches.git("reset", "--quiet", "--hard", "HEAD~1")
    assert "removed  patches/0201-config-configure.patch" in two_patches.refresh()
    assert series(two_patches) == ["0101-run-the-engine.patch"]
    two_patches.git("reset", "--quiet", "--hard", "HEAD~1")
    two_patches.refresh()
    assert series(two_patches) == []
    two_patches.verify()


def test_a_new_patch_finds_its_place_by_its_number(two_patches: Workshop) -> None:
    """A commit lands on top of the line, whatever its number is."""
    two_patches.patch("0150", "Between", ("vllm/engine.py", "engine_020 = 20", "e = 2"))
    final = two_patches.git("rev-parse", "HEAD^{tree}")
    two_patches.refresh()
    assert [n[:4] for n in series(two_patches)] == ["0101", "0150", "0201"]
    assert two_patches.git("rev-parse", "HEAD^{tree}") == final
    subjects = two_patches.git("log", "--format=%s", "-3").splitlines()
    assert subjects == ["[Config] Configure", "Between", "Run the engine"]
    assert "is already applied" in two_patches.command_line("apply").must_succeed().stdout
    assert two_patches.refresh() == []
    two_patches.verify()


def test_patches_that_do_not_fit_in_the_order_of_their_numbers(two_patches: Workshop) -> None:
    before = two_patches.patch_files()
    two_patches.patch("0150", "On top", ("vllm/config.py", "c_5 = 55", "c_5 = 555"))
    error = refused(two_patches)
    assert "do not fit in that order" in error.what
    assert "git rebase -i" in str(error.next_step)
    assert two_patches.patch_files() == before


def test_the_same_number_twice_is_refused(two_patches: Workshop) -> None:
    two_patches.patch("0201", "Third", THIRD_EDIT)
    error = refused(two_patches)
    assert "number 0201 is used twice" in error.what
    assert "Rig-Number" in str(error.next_step)


COMMENTED = """# The series. What it is for.

# 01xx: platform
0101-run-the-engine.patch

# 02xx: streaming
#   and more of it
0201-config-configure.patch   # why it is here

# 03xx: nothing yet
"""


def test_comments_of_the_series_stay(two_patches: Workshop) -> None:
    two_patches.layout.series.write_text(COMMENTED)
    two_patches.refresh()
    text = two_patches.layout.series.read_text()
    for comment in (x for x in COMMENTED.splitlines() if x.startswith("#")):
        assert comment in text
    assert "# why it is here" in text
    two_patches.git("commit", "--quiet", "--amend", "-m", message("0201", "Renamed"))
    two_patches.patch("0202", "Third", THIRD_EDIT)
    two_patches.refresh()
    rows = two_patches.layout.series.read_text().splitlines()
    assert rows.index("# 02xx: streaming") < rows.index("0201-renamed.patch")
    assert rows.index("0201-renamed.patch") + 1 == rows.index("0202-third.patch")
    assert rows.index("0202-third.patch") < rows.index("# 03xx: nothing yet")
    assert two_patches.refresh() == []


def test_a_new_patch_stands_under_its_topic() -> None:
    old = "# Head.\n#\n# 01xx platform\n# 02xx streaming\n# 09xx packaging\n0901-a.patch\n"
    new = series_text(old, ["0101-b.patch", "0203-c.patch", "0901-a.patch"])
    assert new.splitlines() == [
        *("# Head.", "#", "# 01xx platform", "0101-b.patch"),
        *("# 02xx streaming", "0203-c.patch", "# 09xx packaging", "0901-a.patch"),
    ]


@pytest.mark.parametrize("old", [COMMENTED, "", "# only a head\n", "\n\n\n", "0101-a.patch # x"])
@pytest.mark.parametrize("names", [[], ["0101-a.patch"], ["0100-z.patch", "0201-b.patch"]])
def test_writing_a_series_again_changes_nothing(old: str, names: list[str]) -> None:
    once = series_text(old, names)
    assert series_text(once, names) == once
    assert [row for row in once.splitlines() if row and row[0] != "#"] == names
    for row in old.splitlines():
        if row.startswith("#"):
            assert row in once.splitlines()


# --- what is refused ------------------------------------------------------------------------


def _merge(workshop: Workshop) -> None:
    workshop.git("checkout", "--quiet", "-b", "side", "HEAD~1")
    workshop.patch("0301", "Third", THIRD_EDIT)
    workshop.git("checkout", "--quiet", "rig")
    workshop.git("merge", "--quiet", "--no-ff", "-m", message("0401", "Merge"), "side")


def _rebase(workshop: Workshop) -> None:
    workshop.git("-c", "sequence.editor=sed -i s/pick/edit/", "rebase", "-i", "HEAD~2")


def _no_number(workshop: Workshop) -> None:
    workshop.replace(*THIRD_EDIT)
    workshop.commit("Third\n\nNo trailers.\n")


def _other_root(workshop: Workshop) -> None:
    workshop.git("checkout", "--quiet", "--orphan", "root")
    workshop.replace(*THIRD_EDIT)
    workshop.commit(message("0301", "Third"))


def _binary(workshop: Workshop) -> None:
    workshop.write("vllm/data.bin", bytes(range(256)))
    workshop.commit(message("0301", "Third"))


REFUSED: dict[str, tuple[Callable[[Workshop], object], str]] = {
    "modified": (lambda w: w.replace(*THIRD_EDIT), "not committed"),
    "staged": (lambda w: (w.replace(*THIRD_EDIT), w.git("add", ".")), "not committed"),
    "untracked": (lambda w: w.write("new.py", "1"), "not committed"),
    "ignored": (lambda w: w.write("debug.log", "1"), "git add -f"),
    "empty commit": (lambda w: w.commit(message("0301", "Third")), "changes nothing"),
    "no number": (_no_number, "does not say which number"),
    "merge": (_merge, "merge commit"),
    "another root": (_other_root, "do not stand on the untouched release"),
    "binary": (_binary, "binary hunks"),
    "rebase": (_rebase, "rebase"),
    "requires": (
        lambda w: (w.replace(*THIRD_EDIT), w.commit(message("0301", "T", Requires="0999"))),
        "requires 0999",
    ),
    "requires later": (
        lambda w: (w.replace(*THIRD_EDIT), w.commit(message("0301", "T", Requires="0301"))),
        "requires 0301",
    ),
    "trailer": (
        lambda w: (w.replace(*THIRD_EDIT), w.commit(message("0301", "T", Upstream_Status="x"))),
        "none of Pending",
    ),
}


@pytest.mark.parametrize(("edit", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(
    two_patches: Workshop, edit: Callable[[Workshop], object], said: str
) -> None:
    edit(two_patches)
    tree = two_patches.tree()
    head, status = run_git(tree, "rev-parse", "HEAD"), run_git(tree, "status", "--porcelain")
    assert said in str(refused(two_patches))
    assert run_git(tree, "rev-parse", "HEAD") == head
    assert run_git(tree, "status", "--porcelain") == status


def test_an_ignored_file_that_is_committed_is_exported(two_patches: Workshop) -> None:
    two_patches.write("generated/code.py", "made = 1\n")
    two_patches.commit(message("0301", "Third"))
    two_patches.refresh()
    assert (two_patches.apply(SECOND) / "generated/code.py").read_text() == "made = 1\n"
    two_patches.verify()


def test_a_file_name_that_is_not_utf8(two_patches: Workshop) -> None:
    name = os.fsdecode(b"vllm/latin-\xe9.py")
    try:
        two_patches.write(name, "x = 1\n")
    except OSError:
        pytest.skip("this file system has no such names")
    two_patches.commit(message("0301", "Third"))
    assert "name" in str(refused(two_patches))
