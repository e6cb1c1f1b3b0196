"""A release of this very checkout at two paths: the real wheel, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rig.git import Git
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Arch
from rig.release.command import release
from tests.series.workshop import run_git

pytestmark = [pytest.mark.network, pytest.mark.full, pytest.mark.timeout(1800)]
_AUTHOR = {"GIT_AUTHOR_NAME": "A Name", "GIT_AUTHOR_EMAIL": "a@example.org"}
_DATE = "2026-01-01T00:00:00Z"


def checkout_at(folder: Path) -> Layout:
    """What git would keep of this checkout, as it lies, in a repository of one commit."""
    here = layout_of_this_checkout()
    listed = run_git(here.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        source, target = here.root / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    run_git(folder, "add", "--all")
    # One date on both paths, so that they hold the same commit.
    dates = {"GIT_AUTHOR_DATE": _DATE, "GIT_COMMITTER_DATE": _DATE}
    Git(folder).run("commit", "--quiet", "-m", "All", env=_AUTHOR | dates)
    return Layout(folder, here.cache)


def test_two_paths_give_the_same_release(tmp_path: Path) -> None:
    one = checkout_at(tmp_path / "one")
    # A clone, since the checkout may be edited while this runs.
    other = tmp_path / "another path" / "with blanks"
    run_git(tmp_path, "clone", "--quiet", str(one.root), str(other))
    made = [
        release(w, [], Arch.X86_64, require_quilt=False) for w in (one, Layout(other, one.cache))
    ]
    assert any(n.endswith("-manylinux_2_28_x86_64.whl") for n in made[0].digests)
    assert made[0].digests == made[1].digests
    assert made[0].point == made[1].point
