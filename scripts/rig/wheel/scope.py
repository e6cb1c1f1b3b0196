"""Which of a series' changes belong in a wheel, and which a repack cannot carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from rig.errors import RigError
from rig.series.applied import ChangedFile
from rig.wheel.provenance import PROVENANCE_PATH
from rig.wheel.tree import FILE_MODES, PACKAGE

VERSION_PATH = f"{PACKAGE}_version.py"

# Folders of the source tree that no wheel holds and no build reads.
OUTSIDE = (
    "tests/",
    "docs/",
    "examples/",
    "benchmarks/",
    "tools/",
    "docker/",
    "recipes/",
    ".buildkite/",
    ".github/",
)
# What decides what is compiled or packaged. setup.py loads tools/build_rust.py.
_BUILD_INPUTS = ("csrc/", "cmake/", "rust/", "requirements/")
_BUILD_FILES = (
    "CMakeLists.txt",
    "MANIFEST.in",
    "pyproject.toml",
    "rust-toolchain.toml",
    "setup.cfg",
    "setup.py",
    "tools/build_rust.py",
)
_COMPILED = frozenset(
    (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".pyx", ".pxd", ".rs", ".so")
)


@dataclass(frozen=True)
class Scope:
    """A series' changes, sorted.

    Args:
        packaged: files under `vllm/`: they go into the wheel, or out of it.
        outside: paths that no wheel holds, such as tests.
    """

    packaged: tuple[ChangedFile, ...]
    outside: tuple[str, ...]


def sort_changes(changed: Iterable[ChangedFile], *, compiled: bool = False) -> Scope:
    """Sort a series' changes.

    Args:
        compiled: the wheel is compiled from the tree, so that changes to its inputs are no
            reason to refuse.

    Raises:
        RigError: names every change that this kind of build cannot carry, and why.
    """
    packaged, outside, refused = [], [], []
    for file in changed:
        reason = _refusal(file)
        needs_compiler = _needs_compiler(file.path)
        if reason:
            refused.append((file.path, reason, False))
        elif needs_compiler and not compiled:
            refused.append((file.path, needs_compiler, True))
        elif file.path.startswith(PACKAGE):
            packaged.append(file)
        else:
            outside.append(file.path)
    if refused:
        only_compiler = all(by_compiler for _, _, by_compiler in refused)
        raise RigError(
            "the series changes files that a wheel made from the release's cannot carry",
            where=", ".join(path for path, _, _ in refused),
            detail="\n".join(f"{path}: {reason}" for path, reason, _ in refused),
            next_step="`make build FROM=source` compiles the tree for one architecture"
            if only_compiler
            else "take these changes out of the series",
        )
    return Scope(tuple(packaged), tuple(sorted(outside)))


def _refusal(file: ChangedFile) -> str | None:
    """Why no build at all can carry a change."""
    if not file.path.startswith(PACKAGE):
        return None
    if file.path in (VERSION_PATH, PROVENANCE_PATH):
        return "the build writes this file itself"
    if file.mode not in FILE_MODES:
        kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(file.mode, file.mode)
        return f"it is {kind}, a wheel holds only plain files"
    if not _is_plain_path(file.path):
        return "its name cannot be a member's name in a wheel"
    return None


def _needs_compiler(path: str) -> str | None:
    if path in _BUILD_FILES or path.startswith(_BUILD_INPUTS):
        return "it decides what is compiled or packaged"
    if PurePosixPath(path).suffix in _COMPILED:
        return "it is compiled code or its source"
    if not path.startswith((PACKAGE, *OUTSIDE)):
        return "it is not known whether it changes what is built or packaged"
    return None


def _is_plain_path(path: str) -> bool:
    """Whether pip on any system unpacks a member of this name to this path."""
    parts = path.split("/")
    plain = not any(p in ("", ".", "..") for p in parts)
    return plain and "\\" not in path and path.isprintable()  # no control or broken characters
