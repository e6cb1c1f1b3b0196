"""SIGKILL at any moment: the rebase goes on or begins anew, and patches/ is old or new."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.pins import find_pin, primary_pin
from rig.rebase import command
from rig.rebase.state import read_state, tree_of
from rig.series.apply import apply
from tests.series.conftest import reopen
from tests.series.releases import Tree
from tests.series.workshop import Workshop, in_child

from .conftest import checkout_of, read_tree
from .corpus import CASES, ENGINE, FIX, UPSTREAM

MOVED = next(c for c in CASES if c.name == "lines are added above")
CONFLICT = next(c for c in CASES if c.name == "the same fix in other words")
ANSWER = CONFLICT.new_release()[ENGINE].content.replace(b"4 * 1000", b"4_000")
_FEW, _MANY = 8, 200


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moved") / "w"
    checkout_of(MOVED, folder)
    return folder


@pytest.fixture(scope="module")
def conflict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rebase that waits, with the answer already in its tree."""
    folder = tmp_path_factory.mktemp("conflict") / "w"
    workshop = checkout_of(CONFLICT, folder)
    command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    (tree_of(workshop.layout) / ENGINE).write_bytes(ANSWER)
    return folder


def _patches(workshop: Workshop) -> Tree:
    return read_tree(workshop.root / "patches")


def _finish(workshop: Workshop) -> None:
    """What a person does after a crash: the same command, or `--continue`."""
    if read_state(workshop.layout) is None:
        command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    else:
        command.proceed(workshop.layout)


def _seconds_of(folder: Path, scratch: Path, work: Callable[[Workshop], object]) -> float:
    shutil.copytree(folder, scratch / "timed", symlinks=True)
    workshop = reopen(scratch / "timed")
    started = time.monotonic()
    assert in_child(lambda: work(workshop)) == 0
    return time.monotonic() - started


def _kill_at_random(
    folder: Path, scratch: Path, times: int, work: Callable[[Workshop], object]
) -> None:
    whole = _seconds_of(folder, scratch, work)
    before, after = _patches(reopen(folder)), _patches(reopen(scratch / "timed"))
    chance = random.Random(20261130)
    for at in range(times):
        place = scratch / str(at)
        shutil.copytree(folder, place, symlinks=True)
        workshop = reopen(place)
        in_child(lambda w=workshop: work(w), kill_after=chance.uniform(0, whole))  # type: ignore[misc]
        found = _patches(workshop)
        for path, entry in found.items():
            if not Path(path).name.startswith("."):  # a file that is being replaced
                assert entry in (before.get(path), after.get(path)), path
        if primary_pin(workshop.layout).version != UPSTREAM or read_state(workshop.layout):
            _finish(workshop)
        assert _patches(workshop) == after
        workshop.verify()
        shutil.rmtree(place)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("times", [_FEW, pytest.param(_MANY, marks=pytest.mark.full)])
def test_a_rebase_that_is_killed(moved: Path, tmp_path: Path, times: int) -> None:
    _kill_at_random(
        moved,
        tmp_path,
        times,
        lambda workshop: command.begin(workshop.layout, UPSTREAM, None, dry_run=False),
    )
    workshop = reopen(tmp_path / "timed")
    tree = apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder
    assert read_tree(tree) == FIX(MOVED.new_release())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("times", [_FEW, pytest.param(_MANY, marks=pytest.mark.full)])
def test_an_answer_is_not_lost(conflict: Path, tmp_path: Path, times: int) -> None:
    _kill_at_random(conflict, tmp_path, times, lambda workshop: command.proceed(workshop.layout))
    workshop = reopen(tmp_path / "timed")
    tree = apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder
    assert (tree / ENGINE).read_bytes() == ANSWER
