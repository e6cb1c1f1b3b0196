"""A tree's Python as an importable vLLM, on the libraries of an engine's environment."""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path

from rig.errors import RigError
from rig.git import Git

_VERSION = Path("vllm") / "_version.py"
_PROVENANCE = Path("vllm") / "rig_provenance.json"
_NUMBER = re.compile(
    r"""(__version__\s*=\s*version\s*=\s*|version\s*=\s*|__version__\s*=\s*)"""
    r"""(?P<quote>['"])(?P<version>[0-9][^'"]*)(?P=quote)"""
)


def overlay_tree(tree: Path, folder: Path) -> Path:
    """Link the Python of a tree into a folder; new files of the tree's later are not in it.

    Args:
        tree: a folder that holds `vllm/`, such as build/vllm-0.33.0 or an unpacked release.
        folder: an empty folder; put it first on PYTHONPATH.

    Raises:
        RigError: the tree holds no vLLM.
    """
    source = tree.resolve() / "vllm"
    if not (source / "__init__.py").is_file():
        raise no_vllm(tree)
    for at, folders, files in os.walk(source):
        folders[:] = [f for f in folders if f != "__pycache__"]
        target = folder / "vllm" / Path(at).relative_to(source)
        target.mkdir(parents=True, exist_ok=True)
        for name in files:
            (target / name).symlink_to(Path(at) / name)
    return _on_the_cpu(folder)


def no_vllm(tree: Path) -> RigError:
    """What to say of a folder that is no vLLM tree."""
    return RigError(
        "this folder holds no vLLM",
        where=tree,
        next_step="name the folder in which `vllm/` lies: an applied tree, an unpacked release",
    )


def overlay_commit(repository: Path, commit: str, folder: Path) -> Path:
    """Write the Python of a commit into a folder, as `overlay_tree` does with links."""
    archive = Git(repository).run("archive", "--format=tar", commit, "vllm").stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        members.extractall(folder, filter="data")
    return _on_the_cpu(folder)


def _on_the_cpu(folder: Path) -> Path:
    """Name the version of the CPU: vLLM takes its platform from that word."""
    (folder / _PROVENANCE).unlink(missing_ok=True)
    version = folder / _VERSION
    text = version.read_text("utf-8") if version.is_file() else ""
    marked = _NUMBER.sub(_with_cpu, text)
    if "cpu" not in marked:
        # A checkout between releases: setuptools-scm has not written it.
        marked = "__version__ = version = '0.0.0+cpu'\n__version_tuple__ = (0, 0, 0, 'cpu')\n"
    version.unlink(missing_ok=True)
    version.write_text(marked, "utf-8")
    return folder


def _with_cpu(found: re.Match[str]) -> str:
    number = found["version"].partition("+")[0]
    return f"{found[1]}{found['quote']}{number}+cpu{found['quote']}"
