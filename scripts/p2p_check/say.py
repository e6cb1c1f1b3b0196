"""What a rank says while it works: one line of JSON each, kept also when it is killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Sayer:
    """Appends events to a rank's file. Each is written at once: a crash loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def __call__(self, event: str, **facts: object) -> None:
        said = {"event": event, "at": time.monotonic(), **facts}  # one clock for all processes
        os.write(self._file, (json.dumps(said) + "\n").encode())

    def refused(self, why: str) -> None:
        """This way cannot be had here, and something said so."""
        self("refused", detail=why)

    def done(self, size: int, wrong: str, gb_per_s: float | None) -> None:
        """A size was checked. `wrong` is "" when every value was right."""
        self("done", size=size, wrong=wrong, gb_per_s=gb_per_s)
