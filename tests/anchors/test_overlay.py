"""A tree's Python, importable as a vLLM of the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rig.anchors.overlay import overlay_commit, overlay_tree
from rig.errors import RigError
from rig.git import Git

VERSION_FILE = """\
__version__ = version = '0.33.0+rig.2'
__version_tuple__ = version_tuple = (0, 33, 0)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "a tree" / "vllm"
    (package / "models" / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("from vllm._version import __version__\n", "utf-8")
    (package / "_version.py").write_text(VERSION_FILE, "utf-8")
    (package / "models" / "__init__.py").write_text("NAME = 'here'\n", "utf-8")
    (package / "rig_provenance.json").write_text("{}", "utf-8")
    return package.parent


def version_in(folder: Path) -> str:
    code = "import vllm, vllm.models; print(vllm.__version__, vllm.models.NAME)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_tree_becomes_a_vllm_of_the_cpu(tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    overlay_tree(tree, folder)
    assert version_in(folder) == "0.33.0+cpu here"
    # The build check of the series wants an installation of it: this is none.
    assert not (folder / "vllm" / "rig_provenance.json").exists()
    assert (tree / "vllm" / "_version.py").read_text("utf-8") == VERSION_FILE
    assert (tree / "vllm" / "rig_provenance.json").exists()


def test_a_checkout_between_releases_has_no_version_yet(tree: Path, tmp_path: Path) -> None:
    (tree / "vllm" / "_version.py").unlink()
    folder = tmp_path / "overlay"
    folder.mkdir()
    overlay_tree(tree, folder)
    assert version_in(folder) == "0.0.0+cpu here"


def test_a_commit_becomes_one_too(tree: Path, tmp_path: Path) -> None:
    git = Git(tree)
    git.run("init", "--quiet")
    git.run("add", "-A")
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example"}
    git.run("commit", "--quiet", "-m", "release", env=identity)
    (tree / "vllm" / "models" / "__init__.py").write_text("NAME = 'edited'\n", "utf-8")
    folder = tmp_path / "overlay"
    folder.mkdir()
    overlay_commit(tree, "HEAD", folder)
    assert version_in(folder) == "0.33.0+cpu here"


def test_a_folder_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="holds no vLLM"):
        overlay_tree(tmp_path, tmp_path / "overlay")
