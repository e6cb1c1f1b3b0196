"""The verdict on disk: one file for each set of cards, in the user's state folder, private."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from rig.box.facts import Box
from rig.errors import RigError
from rig.p2p.key import cards_digest, changes, key_of, key_parts, packages_of
from rig.p2p.verdict import Verdict

_RUN_IT = "run: ./rig p2p"


@dataclass(frozen=True)
class Lookup:
    """What is kept for a box. Exactly one of the two is there.

    Args:
        verdict: what holds now.
        why_not: why nothing does, and what to do.
    """

    verdict: Verdict | None = None
    why_not: str = ""


def state_folder() -> Path:
    """Where verdicts are kept ($XDG_STATE_HOME is honoured)."""
    return Path(platformdirs.user_state_dir("vllm-rig", appauthor=False)) / "p2p"


def verdict_file(box: Box, folder: Path | None = None) -> Path:
    """The file for these cards."""
    return (folder or state_folder()) / f"{cards_digest(box)}.json"


def find_verdict(box: Box, python: Path) -> Verdict | None:
    """The verdict that holds for this box and this engine now, if there is one."""
    return look_up(box, python).verdict


def look_up(box: Box, python: Path, folder: Path | None = None) -> Lookup:
    """The verdict that holds now, or why there is none. Never raises for a bad file.

    Args:
        python: the engine's: a verdict is for its torch, NCCL and vLLM.
        folder: where verdicts are kept; the user's if None.
    """
    if not box.cards:
        return Lookup(why_not="no cards were seen")
    try:
        verdict = read_verdict(verdict_file(box, folder))
        if verdict is None:
            return Lookup(why_not=f"P2P was never checked with these cards; {_RUN_IT}")
        parts = key_parts(box, packages_of(python))
    except RigError as error:
        return Lookup(why_not=f"{error.what} ({error.where}); {_RUN_IT}")
    if verdict.key != key_of(parts):
        what = "; ".join(changes(verdict.parts, parts)) or "its key is not that of its parts"
        when = verdict.made_at[:10]
        return Lookup(why_not=f"the check of {when} does not hold any more: {what}; {_RUN_IT}")
    return Lookup(verdict)


def read_verdict(file: Path) -> Verdict | None:
    """Read one file; None if there is none.

    Raises:
        RigError: it cannot be read, is another user's or open to others' writing, or is damaged.
    """
    try:
        status = file.stat()
        text = file.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RigError("the stored verdict cannot be read", where=file) from error
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RigError("the stored verdict is not this user's alone", where=file)
    try:
        return Verdict.model_validate_json(text)
    except ValidationError as error:
        raise RigError("the stored verdict is damaged", where=file) from error


def write_verdict(verdict: Verdict, box: Box, folder: Path | None = None) -> Path:
    """Put a verdict in the place of the one before, whole or not at all, mode 0600.

    Raises:
        RigError: it cannot be written; the one before is still there.
    """
    file = verdict_file(box, folder)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".new-")  # 0600
        try:
            with os.fdopen(handle, "w") as new:
                new.write(verdict.model_dump_json(indent=1) + "\n")
                new.flush()
                os.fsync(new.fileno())  # a check may take the whole machine down
            Path(name).replace(file)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise _cannot_keep(error, file.parent) from error
    return file


def _cannot_keep(error: OSError, place: Path) -> RigError:
    step = "if root made it (sudo): `sudo chown -R` it to you" if os.getuid() else None
    return RigError(f"a verdict cannot be kept: {error.strerror}", where=place, next_step=step)


@contextmanager
def only_one(folder: Path | None = None) -> Iterator[None]:
    """Let one check run at a time: two would take each other's bandwidth and cards.

    Raises:
        RigError: another one runs, or its result could not be kept.
    """
    place = folder or state_folder()
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_keep(error, place) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RigError(
                "another check runs", where=place / "lock", next_step="wait for it to end"
            ) from error
        yield
    finally:
        os.close(handle)
