"""Runs that stop at a known step, that meet, or that wait: the next one gives what it should."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.git import Git
from rig.series.apply import locked

from .conftest import reopen
from .releases import PRIMARY, SECOND
from .workshop import Workshop, in_child, in_children, run_git


def seconds_of(work: Callable[[], object]) -> float:
    """How long an undisturbed run in a child takes."""
    started = time.monotonic()
    assert in_child(work) == 0
    return time.monotonic() - started


def die() -> None:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Calls something else before the n-th call of a function."""

    def __init__(self, real: Callable[..., object], calls: int, then: Callable[[], None]) -> None:
        self.real, self.left, self.then = real, calls, then

    def __call__(self, *arguments: object, **named: object) -> object:
        if self.left == 0:
            self.then()
        self.left -= 1
        return self.real(*arguments, **named)


# --- apply ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "calls"), [("rename", 0), ("rename", 1), ("rename", 2), ("rename", 3), ("rmtree", 1)]
)
def test_a_killed_replacement_heals(two_patches: Workshop, name: str, calls: int) -> None:
    """Killed while an old tree makes room for a new one: never a mix, never a tree lost."""
    two_patches.apply(SECOND)
    stamp = two_patches.tree(SECOND) / ".git/rig-stamp.json"
    stamp.write_text(stamp.read_text().replace('"series": "', '"series": "of an older series'))

    def work() -> None:
        owner = shutil if name == "rmtree" else Path
        countdown = Countdown(getattr(owner, name), calls, die)
        setattr(owner, name, lambda *a, **k: countdown(*a, **k))
        two_patches.apply(SECOND)

    assert in_child(work) == -9
    run_git(two_patches.apply(SECOND), "fsck")
    assert two_patches.leftovers() == []
    assert two_patches.saved(SECOND) == []


@pytest.mark.parametrize("calls", [0, 1, 3, 5, 8, 12])
def test_an_apply_killed_before_a_git_command(
    two_patches: Workshop, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    real = Git.run

    def work() -> None:
        countdown = Countdown(real, calls, die)
        monkeypatch.setattr(Git, "run", lambda *a, **k: countdown(*a, **k))
        two_patches.apply(SECOND)

    assert in_child(work) == -9
    two_patches.apply(SECOND)
    assert two_patches.leftovers() == []


def test_leftovers_of_a_dead_run_are_removed(two_patches: Workshop) -> None:
    build = two_patches.layout.build
    for name in (f".new-vllm-{SECOND}", f".new-vllm-{SECOND}.unpack", f".trash-vllm-{SECOND}"):
        (build / name / "vllm").mkdir(parents=True)
        (build / name / "vllm/x.py").write_text("half")
    two_patches.apply(SECOND)
    assert two_patches.leftovers() == []


def test_a_replaced_tree_that_was_edited_is_kept(two_patches: Workshop) -> None:
    """Edited between the check and the exchange, then the run died."""
    tree = two_patches.apply(SECOND)
    (tree / "mine.txt").write_text("mine")
    tree.rename(tree.with_name(f".old-vllm-{SECOND}"))
    two_patches.apply(SECOND)
    assert (two_patches.saved(SECOND)[0] / "mine.txt").read_text() == "mine"
    assert two_patches.leftovers() == []


@pytest.mark.parametrize("count", [2, 3])
def test_runs_at_once(two_patches: Workshop, count: int) -> None:
    assert in_children(*[lambda: two_patches.apply(SECOND)] * count) == [0] * count
    assert run_git(two_patches.tree(SECOND), "status", "--porcelain") == ""
    assert two_patches.leftovers() == []
    two_patches.verify(SECOND)


def test_apply_and_refresh_and_verify_at_once(two_patches: Workshop) -> None:
    before = two_patches.patch_files()
    works = [
        lambda: two_patches.apply(SECOND),
        lambda: two_patches.refresh(),
        lambda: two_patches.verify(),
    ]
    assert in_children(*works) == [0, 0, 0]
    assert two_patches.patch_files() == before
    assert two_patches.leftovers() == []


def test_a_waiting_run_says_so(two_patches: Workshop, capfd: pytest.CaptureFixture[str]) -> None:
    def hold() -> None:
        with locked(two_patches.layout, SECOND):
            time.sleep(1)

    child = os.fork()
    if child == 0:
        try:
            hold()
        finally:
            os._exit(0)
    time.sleep(0.2)
    two_patches.apply(SECOND)
    os.waitpid(child, 0)
    assert f"waiting for another run that works on vLLM {SECOND}" in capfd.readouterr().err


# --- refresh --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(_changed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed refresh of `changed` writes."""
    folder = tmp_path_factory.mktemp("expected") / "w"
    shutil.copytree(_changed, folder, symlinks=True)
    reopen(folder).refresh()
    files = reopen(folder).patch_files()
    assert f"{SECOND}/0202-other.patch" in files, "an override is part of it"
    assert "0201-config-configure.patch" not in files
    return files


@pytest.mark.parametrize("calls", [0, 1, 2, 5, 9, 13, 15])
def test_a_refresh_killed_while_it_writes(
    changed: Workshop, expected: dict[str, bytes], calls: int
) -> None:
    """Between any two files: what was written is no trap for the next run."""

    def work() -> None:
        left = [calls]
        for name in ("replace", "unlink"):
            real = getattr(Path, name)

            def step(
                self: Path, *rest: object, real: Callable[..., object] = real, **named: object
            ) -> object:
                if changed.layout.patches in self.parents:
                    if left[0] == 0:
                        die()
                    left[0] -= 1
                return real(self, *rest, **named)

            setattr(Path, name, step)
        changed.refresh()

    stays = changed.patch_files().keys() & expected.keys()
    assert in_child(work) == -9
    assert stays <= changed.patch_files().keys()
    changed.refresh()
    assert changed.patch_files() == expected
    assert changed.leftovers() == []
    changed.apply()


def test_two_refreshes_at_once(changed: Workshop) -> None:
    assert in_children(changed.refresh, changed.refresh) == [0, 0]
    changed.verify(PRIMARY)
    assert changed.refresh() == []


def test_refreshes_of_two_pins_at_once(changed: Workshop) -> None:
    changed.refresh()
    changed.apply(SECOND)
    before = changed.patch_files()
    works = [changed.refresh, lambda: changed.refresh(SECOND)]
    assert in_children(*works, *works) == [0] * 4
    assert changed.patch_files() == before
    assert changed.leftovers() == []


def test_a_killed_verify_leaves_nothing_for_long(two_patches: Workshop) -> None:
    whole = seconds_of(two_patches.verify)
    for part in (0.3, 0.6):
        in_child(two_patches.verify, kill_after=whole * part)
        two_patches.verify(SECOND)
        assert two_patches.leftovers() == []
