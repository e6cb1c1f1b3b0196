"""Fabricated checkouts for the tests of the series."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .workshop import Workshop, run_git


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A checkout of two pins with an empty series that was never applied."""
    return Workshop(tmp_path)


@pytest.fixture(scope="session")
def _two_patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two-patches")
    Workshop(folder).with_two_patches()
    return folder


@pytest.fixture
def two_patches(_two_patches: Path, tmp_path: Path) -> Workshop:
    """A checkout whose series of two patches is refreshed; its primary tree is applied."""
    shutil.copytree(_two_patches, tmp_path / "w", symlinks=True)
    return reopen(tmp_path / "w")


def reopen(folder: Path) -> Workshop:
    """A workshop on files that are there already."""
    workshop = Workshop.__new__(Workshop)
    workshop.attach(folder)
    return workshop


@pytest.fixture(scope="session")
def _changed(_two_patches: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed") / "w"
    shutil.copytree(_two_patches, folder, symlinks=True)
    workshop = reopen(folder)
    workshop.git("reset", "--quiet", "--hard", "HEAD~2")
    workshop.patch("0101", "Run it", ("vllm/engine.py", "engine_040 = 40", "engine_040 = 4"))
    workshop.patch("0202", "Other", ("vllm/config.py", "config_018 = 18", "config_018 = 1"))
    workshop.patch("0301", "Third", ("vllm/engine.py", "engine_070 = 70", "engine_070 = 7"))
    return folder


@pytest.fixture
def changed(_changed: Path, tmp_path: Path) -> Workshop:
    """A series that the tree has changed in every way: new, renamed, dropped, overridden."""
    shutil.copytree(_changed, tmp_path / "w", symlinks=True)
    return reopen(tmp_path / "w")


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """A repository of two files; the patches here change `one.py` only."""
    folder = tmp_path / "ground"
    folder.mkdir()
    for name in ("one.py", "victim.py"):
        (folder / name).write_text("a = 1\nb = 2\nc = 3\n")
    run_git(folder, "init", "--quiet")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "--quiet", "-m", "base")
    return folder


@pytest.fixture
def diff(ground: Path) -> str:
    (ground / "one.py").write_text("a = 1\nb = 22\nc = 3\n")
    made = run_git(ground, "diff", "--full-index")
    run_git(ground, "checkout", "one.py")
    return made
