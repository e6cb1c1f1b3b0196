"""`rig clean`, `rig check-patches` and `patches/revision`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.check_patches import check_patches
from rig.clean import clean
from rig.errors import RigError
from rig.pins import find_pin
from rig.rebase.state import RebaseState, tree_of, write_state
from rig.revision import read_revision
from rig.series.apply import apply, locked
from rig.series.scratch import scratch_folder
from tests.series.releases import PRIMARY, message
from tests.series.workshop import Workshop


def test_clean_leaves_what_a_person_made(workshop: Workshop) -> None:
    tree = workshop.start()
    (tree / "vllm" / "engine.py").write_text("mine = True\n")
    saved = workshop.layout.build / "vllm-9.saved-20260101-000000"
    saved.mkdir()
    (workshop.layout.build / "engine-1-cpu").mkdir()
    (workshop.layout.dist).mkdir()
    (workshop.layout.dist / "old.whl").touch()
    said = clean(workshop.layout)
    assert (tree / "vllm" / "engine.py").read_text() == "mine = True\n"
    assert saved.is_dir()
    assert not (workshop.layout.build / "engine-1-cpu").exists()
    assert not (workshop.layout.dist / "old.whl").exists()
    assert sum(line.startswith("kept") for line in said) == 2


def test_clean_waits_for_nobody_and_takes_nothing_from_a_running_command(
    workshop: Workshop,
) -> None:
    tree = workshop.start()
    with scratch_folder(workshop.layout, "verify") as scratch:
        (scratch / "half").touch()
        with pytest.raises(RigError, match="another command works there"):
            clean(workshop.layout)
        assert (scratch / "half").exists()
    with locked(workshop.layout, PRIMARY), pytest.raises(RigError, match="another command"):
        clean(workshop.layout)
    assert tree.is_dir()


def test_clean_keeps_a_rebase_in_progress(workshop: Workshop) -> None:
    workshop.start()
    write_state(workshop.layout, RebaseState(old=PRIMARY, new="9.9.9", stopped_at="0101"))
    answer = tree_of(workshop.layout) / "answer.py"
    answer.parent.mkdir()
    answer.write_text("mine = True\n")
    said = clean(workshop.layout)
    assert answer.read_text() == "mine = True\n"
    assert [line for line in said if "a rebase in progress" in line]


@pytest.mark.parametrize("purpose", ["forecast", "rebase-look", "bisect-pin", "release", "rebase"])
def test_clean_takes_nothing_from_any_command(workshop: Workshop, purpose: str) -> None:
    workshop.start()
    with (
        scratch_folder(workshop.layout, purpose),
        pytest.raises(RigError, match="another command works there"),
    ):
        clean(workshop.layout)


def test_clean_removes_a_tree_without_edits(workshop: Workshop) -> None:
    tree = workshop.start()
    clean(workshop.layout)
    assert not tree.exists()
    assert clean(workshop.layout) == ["nothing to remove"]


def test_a_pin_with_another_commit_is_refused_also_when_the_tree_is_there(
    workshop: Workshop,
) -> None:
    workshop.start()
    pin = workshop.layout.pins / f"{PRIMARY}.toml"
    right = find_pin(workshop.layout, PRIMARY).commit
    wrong = f"{right[:7]}{'0' if right[7] != '0' else '1'}{right[8:]}"
    pin.write_text(pin.read_text().replace(right, wrong))
    with pytest.raises(RigError, match=f"commit {right}, the pin says {wrong}"):
        workshop.apply()


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import os\n", "ruff complains"),
        ("x   =  1\n", "ruff complains"),
        ('x: int = "one"\n', "mypy complains"),
    ],
)
def test_a_patch_that_breaks_the_tree_s_own_rules(
    workshop: Workshop, code: str, complaint: str
) -> None:
    tree = workshop.start()
    (tree / "vllm" / "added.py").write_text(code)
    workshop.commit(message("0101", "Add"))
    workshop.refresh()
    applied = apply(workshop.layout, find_pin(workshop.layout, PRIMARY))
    with pytest.raises(RigError, match=complaint) as error:
        check_patches(applied)
    assert "vllm/added.py" in str(error.value)


def test_mypy_leaves_out_what_vllm_s_own_hook_does(workshop: Workshop) -> None:
    """Such files do not pass as released: a patch may touch them all the same."""
    tree = workshop.start()
    hook = tree / "tools" / "pre_commit" / "mypy.py"
    hook.parent.mkdir(parents=True)
    hook.write_text('EXCLUDE = [\n    r"vllm/[wW]",\n]\n')
    for name in ("whisper", "added"):
        (tree / "vllm" / f"{name}.py").write_text('x: int = "one"\n')
    workshop.commit(message("0101", "Add"))
    workshop.refresh()
    applied = apply(workshop.layout, find_pin(workshop.layout, PRIMARY))
    with pytest.raises(RigError, match="mypy complains") as error:
        check_patches(applied)
    assert "vllm/added.py" in str(error.value) and "whisper" not in str(error.value)
    (tree / "vllm" / "added.py").write_text("x: int = 1\n")
    workshop.commit(message("0102", "Correct"))
    workshop.refresh()
    applied = apply(workshop.layout, find_pin(workshop.layout, PRIMARY))
    assert "mypy leaves out vllm/whisper.py" in check_patches(applied)


@pytest.mark.parametrize("text", ["", "0", "-1", "01", "1.5", "one", "1 2"])
def test_a_revision_is_one_whole_number(workshop: Workshop, text: str) -> None:
    workshop.layout.revision.write_text(text)
    with pytest.raises(RigError, match="whole number"):
        read_revision(workshop.layout)


def test_a_missing_revision_is_told(workshop: Workshop, tmp_path: Path) -> None:
    workshop.layout.revision.unlink()
    with pytest.raises(RigError, match="patches/revision"):
        read_revision(workshop.layout)
