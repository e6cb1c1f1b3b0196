"""How a step of `serve` ends the launch before anything was started."""

from __future__ import annotations

from rig.errors import RigError


class Refused(Exception):
    """A step says no: the error for a person, and the exit status for a supervisor."""

    def __init__(self, error: RigError, code: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.code = code
