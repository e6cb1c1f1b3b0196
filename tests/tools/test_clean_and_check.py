"""`rig clean`, `rig check-patches` and `patches/revision`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock, Timeout

from rig.check_patches import check_patches
from rig.clean import clean, locks_to_hold
from rig.errors import RigError
from rig.image.build import context_folder
from rig.layout import Layout
from rig.pins import Flavour, find_pin, read_pins
from rig.rebase.state import RebaseState, tree_of, write_state
from rig.rehearsal.environment import environment_folder
from rig.revision import read_revision
from rig.series.apply import apply, locked
from rig.series.scratch import scratch_folder
from tests.series.releases import PRIMARY, SECOND, message
from tests.series.workshop import Workshop

ROOT = Path(__file__).resolve().parents[2]


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
    assert any(line.endswith("rm -rf build/vllm-9.saved-20260101-000000") for line in said)


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


@pytest.mark.parametrize("name", [f"vllm-{SECOND}", f".old-vllm-{SECOND}"])
def test_clean_keeps_an_edited_tree_whose_pin_is_gone(workshop: Workshop, name: str) -> None:
    """Such as on a branch that does not have the pin yet; or what a killed apply replaced."""
    workshop.start()
    tree = workshop.apply(SECOND).rename(workshop.layout.build / name)
    mine = tree / "mine.py"
    mine.write_text("mine = True\n")
    (workshop.layout.pins / f"{SECOND}.toml").unlink()
    said = clean(workshop.layout)
    assert mine.read_text() == "mine = True\n"
    assert [line for line in said if line.startswith(f"kept     build/{name}: ")]
    mine.unlink()
    clean(workshop.layout)
    assert not tree.exists()


def test_a_clean_that_is_stopped_midway_is_ended_by_the_next_one(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = workshop.start()

    def stopped(path: Path) -> None:
        shutil.rmtree(path / ".git" / "objects")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rig.clean.shutil", SimpleNamespace(rmtree=stopped))
        with pytest.raises(KeyboardInterrupt):
            clean(workshop.layout)
    assert not tree.exists(), "half a tree would be taken for a person's work"
    told: list[str] = []
    assert clean(workshop.layout, told.append) == told
    assert [line.split()[0] for line in told] == ["removed"]
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


def _purposes() -> set[str]:
    """What the tools' own source gives to `scratch_folder`, a pin's version as `{...}`."""
    source = "".join(p.read_text() for p in (ROOT / "scripts" / "rig").rglob("*.py"))
    return set(re.findall(r'scratch_folder\(\w+, f?"([^"]+)"\)', source))


def test_clean_holds_the_lock_of_a_command_that_may_begin_at_any_moment(workshop: Workshop) -> None:
    """A lock that is not there yet could be made, and its folder filled, during the removal."""
    build, pins = workshop.layout.build, read_pins(workshop.layout)
    wanted = {build / "docs-env.lock", build / "rehearsal.lock"}
    for purpose in _purposes():
        names = [re.sub(r"\{.+\}", pin.version, purpose) for pin in pins]
        wanted |= {build / f".{name}.lock" for name in names}
    for pin in pins:
        folder = environment_folder(workshop.layout, pin)
        wanted |= {folder.with_name(f"{folder.name}.lock"), build / f".source-{pin.version}.lock"}
        for context in (context_folder(workshop.layout, pin, flavour) for flavour in Flavour):
            wanted.add(context.with_name(f"{context.name}.lock"))
    assert len(wanted) > 12
    assert not any(path.exists() for path in wanted)
    assert wanted - set(locks_to_hold(workshop.layout)) == set()


def test_clean_takes_nothing_from_the_first_build_of_the_site(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins while clean removes: nothing of it was there when clean looked for locks."""
    build = workshop.layout.build
    (build / "old").mkdir(parents=True)
    seen = []

    def remove(path: Path) -> None:
        with pytest.raises(Timeout):
            FileLock(build / "docs-env.lock", timeout=0).acquire()
        seen.append(path)

    monkeypatch.setattr("rig.clean.shutil.rmtree", remove)
    clean(workshop.layout)
    assert build / ".removing-old" in seen


def test_clean_takes_nothing_from_a_build_of_an_image(workshop: Workshop) -> None:
    context = workshop.layout.build / "image" / f"{PRIMARY}-cpu"
    context.mkdir(parents=True)
    with (
        FileLock(context.with_name(f"{context.name}.lock")),
        pytest.raises(RigError, match="another command works there"),
    ):
        clean(workshop.layout)
    assert context.is_dir()


def test_clean_leaves_what_comes_while_it_takes_its_locks(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of a later day, with a lock that nobody has told clean of."""
    new = workshop.layout.build / "new"
    (workshop.layout.build / "old").mkdir(parents=True)

    def locks(layout: Layout) -> list[Path]:
        new.mkdir()
        return locks_to_hold(layout)

    monkeypatch.setattr("rig.clean.locks_to_hold", locks)
    clean(workshop.layout)
    assert new.is_dir()
    assert not (workshop.layout.build / "old").exists()
