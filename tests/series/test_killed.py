"""SIGKILL at random moments of `rig apply` and `rig refresh`, run as a person runs them.

Every second kill takes the program alone, so that its git goes on for a moment; the others take
its git as well, as a machine does that runs out of memory or is shut down.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .conftest import reopen
from .releases import SECOND
from .workshop import Running, Workshop, run_git

SEED = 20261130
MINE = "mine.txt"
_FEW, _MANY = 12, 200
_WRITING_SECONDS = 0.002  # about what a refresh needs for the files of these checkouts
TIMES = pytest.mark.parametrize("times", [_FEW, pytest.param(_MANY, marks=pytest.mark.full)])

Check = Callable[[Workshop], None]


class Killer:
    """Kills one command again and again, each time in a fresh copy of a checkout."""

    def __init__(self, folder: Path, scratch: Path, *command: str) -> None:
        self.folder, self.scratch, self.command = folder, scratch, command
        self.timed = self.hits = self.writing = 0
        self.seen: Counter[str] = Counter()
        # Once to have Python's caches in the folder that is copied, then for the time.
        reopen(folder).command_line("pins").must_succeed()
        # The shortest of three: one alone may be slow because of other work on the machine.
        self.whole = min(self._timed(f"done {at}") for at in range(3))
        self.done = reopen(scratch / "done 0")

    def _timed(self, name: str) -> float:
        workshop = self._copy(name)
        with workshop.started(*self.command) as child:
            _wait_for_its_lock(workshop, child)
            started = time.monotonic()
            child.communicate()
        assert child.returncode == 0
        return time.monotonic() - started

    def _copy(self, name: str) -> Workshop:
        shutil.copytree(self.folder, self.scratch / name, symlinks=True)
        workshop = reopen(self.scratch / name)
        for lock in workshop.layout.build.glob(".*.lock"):
            lock.unlink()
        return workshop

    def kill(
        self, at: int, part: float, *, check: Check, again: Check, writing: bool = False
    ) -> None:
        """Kill it after a part of its time; `check` then, run it again, and check `again`.

        Writing: kill it when it begins to write patches/, which is a moment that a random one
        seldom meets; `part` is of the milliseconds that it takes.
        """
        workshop = self._copy(str(at))
        before = _state_of(workshop.layout.patches)
        with workshop.started(*self.command) as child:
            _wait_for_its_lock(workshop, child)
            if writing:
                while child.poll() is None and _state_of(workshop.layout.patches) == before:
                    pass
                time.sleep(part * _WRITING_SECONDS)
            else:
                time.sleep(part * self.whole)
            _kill(child, with_its_git=bool(at % 2))
            child.communicate()
        hit = child.returncode == -signal.SIGKILL
        if writing:
            self.writing += hit
        else:
            self.timed += 1
            self.hits += hit
            # Other work on the machine makes the command slower or faster than when it was timed.
            if not hit:
                self.whole *= 0.9
            elif part > 0.9:
                self.whole *= 1.1
        left = " ".join(re.sub(r"-\d+$", "", name) for name in workshop.leftovers())
        self.seen[left.replace(str(workshop.root), "") or "nothing in build/"] += 1
        try:
            check(workshop)
            workshop.command_line(*self.command).must_succeed()
            again(workshop)
            assert workshop.leftovers() == []
            assert list(workshop.layout.build.glob("*/.git/**/*.lock")) == []
        except BaseException as error:
            error.add_note(f"seed {SEED}, kill {at} of {self.command}: at {part:.3f} of its time")
            raise
        shutil.rmtree(workshop.root.parent)


def _kill(child: Running, *, with_its_git: bool) -> None:
    if child.returncode is None:  # nobody has waited for it: the number is its own
        (os.killpg if with_its_git else os.kill)(child.pid, signal.SIGKILL)


def _wait_for_its_lock(workshop: Workshop, child: Running) -> None:
    """Until a command begins its work: to kill Python while it starts proves nothing."""
    has_ended = False
    while not any(workshop.layout.build.glob(".*.lock")):
        assert not has_ended, child.communicate()[1].decode()
        has_ended = child.poll() is not None
        time.sleep(0.001)


def _state_of(folder: Path) -> set[tuple[str, int]]:
    """The files of a folder and when each was written, in nanoseconds."""
    found = set()
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it goes while we look
            found.add((str(path), path.stat().st_mtime_ns))
    return found


def _report(*killers: Killer) -> None:
    """What `pytest -s` shows: how many kills came in time, and what lay there then."""
    for killer in killers:
        total = sum(killer.seen.values())
        print(f"\n{' '.join(killer.command)}: {killer.hits} of {killer.timed} kills hit, in a run "
              f"of {killer.whole:.2f} s, and {killer.writing} of {total - killer.timed} while it "
              "wrote; left behind:")  # fmt: skip
        for left, count in killer.seen.most_common():
            print(f"  {count:4} {left}")
    # Over all of them: of the few kills of a quick run, each has too few to judge by.
    # Those while it writes do not count: on a busy machine we may not run in such a moment.
    hits, kills = sum(k.hits for k in killers), sum(k.timed for k in killers)
    assert hits * 2 > kills, "the moments were too late to prove anything"


def _files(tree: Path) -> dict[str, bytes]:
    """The work tree of a person."""
    return {
        str(p.relative_to(tree)): p.read_bytes()
        for p in sorted(tree.rglob("*"))
        if p.is_file() and p.relative_to(tree).parts[0] != ".git"
    }


@pytest.fixture
def absent(two_patches: Workshop, tmp_path: Path) -> Killer:
    """`apply` makes a tree that is not there."""
    return Killer(two_patches.root.parent, _folder(tmp_path / "absent"), "apply", SECOND)


@pytest.fixture
def outdated(_two_patches: Path, tmp_path: Path) -> Killer:
    """`apply` replaces a tree of an older series."""
    workshop = _another(_two_patches, tmp_path / "of outdated")
    stamp = workshop.apply(SECOND) / ".git/rig-stamp.json"
    stamp.write_text(stamp.read_text().replace('"series": "', '"series": "of an older series'))
    return Killer(workshop.root.parent, _folder(tmp_path / "outdated"), "apply", SECOND)


@pytest.fixture
def edited(_two_patches: Path, tmp_path: Path) -> Killer:
    """`apply --discard` puts a tree that a person edited aside."""
    workshop = _another(_two_patches, tmp_path / "of edited")
    (workshop.apply(SECOND) / MINE).write_text("mine")
    folder = _folder(tmp_path / "edited")
    return Killer(workshop.root.parent, folder, "apply", SECOND, "--discard")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _another(folder: Path, place: Path) -> Workshop:
    shutil.copytree(folder, place, symlinks=True)
    return reopen(place)


@TIMES
@pytest.mark.timeout(3600)
def test_an_apply_that_is_killed(
    absent: Killer, outdated: Killer, edited: Killer, times: int
) -> None:
    before = absent.done.patch_files()
    head = run_git(absent.done.tree(SECOND), "rev-parse", "HEAD")

    def check(workshop: Workshop, works: int) -> None:
        assert workshop.patch_files() == before
        mine = list(workshop.layout.build.glob(f"*/{MINE}"))
        assert [p.read_text() for p in mine] == ["mine"] * works

    def again(workshop: Workshop, works: int) -> None:
        check(workshop, works)
        tree = workshop.tree(SECOND)
        assert run_git(tree, "rev-parse", "HEAD") == head
        assert run_git(tree, "status", "--porcelain", "--ignored") == ""
        run_git(tree, "fsck")
        saved = [p.name for kept in workshop.saved(SECOND) for p in kept.glob(MINE)]
        assert saved == [MINE] * works
        assert len(workshop.saved(SECOND)) == works

    dice = random.Random(SEED)
    killers = [absent, outdated, edited]
    for at in range(times):
        # Pairs, so that each way of killing meets each state of the tree.
        killer = killers[at // 2 % 3]
        works = int(killer is edited)
        killer.kill(
            at, dice.random(), check=partial(check, works=works), again=partial(again, works=works)
        )
    _report(*killers)


@TIMES
@pytest.mark.timeout(3600)
def test_a_refresh_that_is_killed(changed: Workshop, tmp_path: Path, times: int) -> None:
    killer = Killer(changed.root.parent, _folder(tmp_path / "refresh"), "refresh")
    before, after = changed.patch_files(), killer.done.patch_files()
    assert f"{SECOND}/0202-other.patch" in after, "an override is part of it"
    work = _files(changed.tree())
    head = run_git(killer.done.tree(), "rev-parse", "HEAD")
    heads = {run_git(changed.tree(), "rev-parse", "HEAD"), head}

    def check(workshop: Workshop) -> None:
        now = workshop.patch_files()
        assert before.keys() & after.keys() <= now.keys(), "a file is gone that stays"
        for path, content in now.items():
            if not Path(path).name.startswith("."):  # a file that is being replaced
                assert content in (before.get(path), after.get(path)), path
        assert _files(workshop.tree()) == work
        assert run_git(workshop.tree(), "rev-parse", "HEAD") in heads

    def again(workshop: Workshop) -> None:
        assert workshop.patch_files() == after
        assert _files(workshop.tree()) == work
        assert run_git(workshop.tree(), "rev-parse", "HEAD") == head
        assert run_git(workshop.tree(), "status", "--porcelain", "--ignored") == ""
        workshop.apply()
        assert workshop.saved() == []

    dice = random.Random(SEED)
    for at in range(times):
        killer.kill(at, dice.random(), check=check, again=again, writing=at % 4 > 1)
    _report(killer)


@pytest.mark.timeout(60)
def test_a_command_that_fails_is_not_waited_for(two_patches: Workshop, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no-such-command"):
        Killer(two_patches.root.parent, _folder(tmp_path / "none"), "no-such-command")


def test_one_that_has_ended_is_not_killed(two_patches: Workshop) -> None:
    """Its number may be that of another process by then."""
    with two_patches.started("pins") as child:
        child.communicate()
        _kill(child, with_its_git=True)
        _kill(child, with_its_git=False)
    assert child.returncode == 0
