"""The token of a cluster: a file that each box has a copy of, and that nobody else may read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import platformdirs

from rig.errors import RigError, first_line_of_os_error

_LEAST_CHARACTERS = 32


def default_token_file() -> Path:
    """Where a head keeps its token when no file is named."""
    return Path(platformdirs.user_config_dir("vllm-rig", appauthor=False)) / "cluster-token"


def make_token_file(path: Path) -> bool:
    """Write a new token, mode 0600, unless the file is there; whether it was made.

    Raises:
        RigError: it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(secrets.token_hex(32))
        except BaseException:
            path.unlink()
            raise
    except FileExistsError:
        return False
    except OSError as error:
        raise RigError(
            f"the token cannot be written: {first_line_of_os_error(error)}", where=path
        ) from error
    return True


def check_token_file(path: Path) -> None:
    """Check that a token is this user's alone. The token itself is never shown.

    Raises:
        RigError: it is missing, others may read it, it is another user's, or it is no token.
    """
    step = "copy it from the head, e.g. `scp -p HEAD:TOKEN_FILE .`, and `chmod 600` it"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise RigError(
            f"the token file cannot be read: {first_line_of_os_error(error)}",
            where=path,
            next_step=step,
        ) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RigError("the token file is no plain file", where=path, next_step=step)
        if status.st_uid != os.getuid():
            raise RigError(
                "the token file is another user's",
                where=path,
                next_step=f"`chown {os.getuid()}` it, or make a copy of your own, mode 600",
            )
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise RigError(
                f"others may read the token file (mode {mode:04o})",
                where=path,
                next_step="whoever has the token runs code on your boxes: make a new one if this "
                "box has other users, then `chmod 600` it",
            )
        token = os.read(descriptor, 4097)
    finally:
        os.close(descriptor)
    if not _LEAST_CHARACTERS <= len(token.strip()) <= 4096 or not token.strip().isalnum():
        raise RigError(
            f"the token file does not hold {_LEAST_CHARACTERS} or more letters and digits",
            where=path,
            next_step=step,
        )
