"""Reading an applied tree out of git's objects: never out of the work tree, which may be edited."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from rig.errors import RigError
from rig.git import Git
from rig.series.applied import AppliedTree, ChangedFile
from rig.series.pristine import PRISTINE_REF

PACKAGE = "vllm/"
FILE_MODES = ("100644", "100755")


@dataclass(frozen=True)
class TreeFile:
    """One path of a git tree."""

    mode: str
    blob: str


@dataclass(frozen=True)
class Sources:
    """The package's files of a release and of the series on it, and the changed files' bytes.

    Args:
        pristine: path -> file, only under `vllm/`.
        final: the same after the series.
        contents: path -> bytes, each file under `vllm/` that the series adds or modifies.
        version_file: the release's `vllm/_version.py`.
    """

    pristine: dict[str, TreeFile]
    final: dict[str, TreeFile]
    contents: dict[str, bytes]
    version_file: bytes


def blob_id(data: bytes) -> str:
    """The id that git gives these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def list_package(git: Git, revision: str) -> dict[str, TreeFile]:
    """Every path under `vllm/` of a revision."""
    files = {}
    for line in git.null_separated("ls-tree", "-r", "-z", "--full-tree", revision, PACKAGE):
        meta, _, path = line.partition("\t")
        mode, _, blob = meta.split(" ")
        files[path] = TreeFile(mode, blob)
    return files


def read_sources(applied: AppliedTree, packaged: Iterable[ChangedFile]) -> Sources:
    """Read what a build needs from the applied tree's repository.

    Args:
        packaged: the changed files under `vllm/`, as rig.wheel.scope chose them.

    Raises:
        RigError: the repository lacks an object, a blob does not match its id, or the list of
            changed files is not the difference of the two trees.
    """
    git = Git(applied.folder)
    pristine = list_package(git, PRISTINE_REF)
    final = list_package(git, applied.final_tree)
    packaged = tuple(packaged)
    _check_difference(pristine, final, {f.path for f in packaged}, applied)
    version_path = f"{PACKAGE}_version.py"
    if version_path not in pristine:
        raise RigError(f"the release's source has no {version_path}", where=applied.folder)
    wanted = {f.path: f.after for f in packaged if f.after is not None}
    blobs = git.blobs([*wanted.values(), pristine[version_path].blob])
    for blob, data in blobs.items():
        if blob_id(data) != blob:
            raise RigError(
                f"git gave other bytes than those of blob {blob}",
                where=applied.folder,
                next_step="the repository is damaged: delete it and run `make apply` again",
            )
    return Sources(
        pristine=pristine,
        final=final,
        contents={path: blobs[blob] for path, blob in wanted.items()},
        version_file=blobs[pristine[version_path].blob],
    )


def _check_difference(
    pristine: dict[str, TreeFile],
    final: dict[str, TreeFile],
    named: set[str],
    applied: AppliedTree,
) -> None:
    differing = {p for p in pristine.keys() | final.keys() if pristine.get(p) != final.get(p)}
    if differing != named:
        raise RigError(
            "the applied tree and its list of changed files disagree",
            where=applied.folder,
            detail="\n".join(sorted(differing ^ named)),
            next_step="delete the folder and run `make apply` again",
        )
