"""Locks: for one pin, the git blob of every touched file before and after each patch."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from rig.errors import RigError
from rig.layout import Layout

ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Mode = Annotated[str, StringConstraints(pattern=r"^[0-7]{6}$")]
ABSENT = "0" * 40

_HEADER = "# Written by `rig refresh`. It proves what an apply must give; do not edit it.\n\n"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LockedFile(_Strict):
    """One file that a patch touches; an absent side has an id of zeros and mode 000000."""

    path: str
    before: ObjectId
    after: ObjectId
    mode_before: Mode
    mode_after: Mode


class LockedPatch(_Strict):
    """One patch: the digest of its text, what it does to each file, the tree it gives."""

    name: str
    sha256: str
    tree: ObjectId
    file: tuple[LockedFile, ...]


class Lock(_Strict):
    """What applying the series on one pin must give.

    Args:
        version: the pin.
        pristine: the tree id of the untouched release.
        final: the tree id of the applied series.
        series: digest of the texts, see `listing.series_digest`.
        by_hand: numbers of the patches whose text a person made for this pin. A refresh keeps
            these; the other texts in `patches/<version>/` it wrote itself and may write anew.
        patch: one entry a patch, in order.
    """

    version: str
    pristine: ObjectId
    final: ObjectId
    series: str
    by_hand: tuple[str, ...] = ()
    patch: tuple[LockedPatch, ...] = ()


def read_lock(layout: Layout, version: str) -> Lock:
    """Read the lock of a pin.

    Raises:
        RigError: there is none, or it is damaged.
    """
    path = layout.lock(version)
    next_step = f"`make refresh VLLM={version}` renews it; read the change before you commit it"
    try:
        lock = Lock.model_validate(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError as error:
        raise RigError(
            f"vLLM {version} has no lock, so an apply cannot be proven",
            where=layout.shown(path),
            next_step=next_step,
        ) from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RigError(
            f"the lock cannot be read: {error}", where=layout.shown(path), next_step=next_step
        ) from error
    except ValidationError as error:
        problems = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()]
        raise RigError(
            "the lock does not hold what a lock must hold",
            where=layout.shown(path),
            detail="\n".join(problems),
            next_step=next_step,
        ) from error
    if lock.version != version:
        raise RigError(
            f"the lock is of vLLM {lock.version}", where=layout.shown(path), next_step=next_step
        )
    return lock


def lock_text(lock: Lock) -> str:
    """The bytes of a lock file, always the same for the same lock."""
    return _HEADER + tomli_w.dumps(lock.model_dump(), multiline_strings=False)


def replace_file(path: Path, content: bytes) -> bool:
    """Replace a file in one step if its content changes; says whether it did."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
