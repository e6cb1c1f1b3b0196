"""Write what a plan wants the engine to read."""

from __future__ import annotations

import os
from pathlib import Path

from rig.errors import RigError
from rig.launch.plan import ServePlan


def write_files(plan: ServePlan) -> None:
    """Write what the engine is to read, for this user's eyes only.

    Raises:
        RigError: it cannot be written.
    """
    for name, text in plan.files.items():
        path = Path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as f:
                f.write(text)
        except OSError as error:
            raise RigError(
                f"a file for the engine cannot be written: {error.strerror}", where=path
            ) from error
