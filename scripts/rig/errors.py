"""The one error type that the command line shows to a person."""

from __future__ import annotations

import re


class RigError(Exception):
    """A failure that a person can act on.

    Args:
        what: what went wrong, in one sentence.
        where: the file, patch, key or address that it is about.
        next_step: what to do about it.
        detail: longer evidence (both hunks of a conflict, say), shown before the rest.
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        next_step: str | None = None,
        detail: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.next_step = next_step
        self.detail = detail
        super().__init__(self.__str__())

    def __str__(self) -> str:
        lines = [self.detail.rstrip("\n")] if self.detail else []
        lines.append(f"error: {self.what}")
        if self.where is not None:
            lines.append(f"  where: {self.where}")
        if self.next_step:
            lines.append(f"  next:  {self.next_step}")
        return "\n".join(lines)


def first_line_of_os_error(error: OSError) -> str:
    """Say what the operating system said, without Python's bracketed number."""
    return error.strerror or str(error)


def said_of_usage(said: str, command: str) -> RigError:
    """A wrong command line in our words, less those of the library that reads the options.

    Args:
        said: what that library says.
        command: the command that was typed, such as `./rig build`.
    """
    said = said.replace("Value error, ", "").rstrip(".")
    said = re.sub(r"Input should be (.+?)(, unable to parse.*)?$", r"it must be \1", said)
    return RigError(said[:1].lower() + said[1:], next_step=f"{command} --help")
