"""Make a report: gather, redact, write with mode 0600."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from rig.errors import RigError, first_line_of_os_error
from rig.report.identity import Identity
from rig.report.redact import Redactor
from rig.report.sections import Section

_LONGEST_LINE = 2_000


def render(
    sections: Iterable[Section], identity: Identity, *, when: datetime
) -> tuple[str, Mapping[str, int]]:
    """The whole report as Markdown, redacted, and what was replaced how often."""
    redactor = Redactor(identity)
    parts = []
    for section in sections:
        # Redacted before anything is cut: a part of a secret is not known for one.
        body = "\n".join(
            line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ..."
            for line in redactor.redact(_printable(section.body)).splitlines()
        )
        fence = _fence(body)
        parts.append(f"## {redactor.redact(section.title)}\n\n{fence}\n{body}\n{fence}\n")
    counts = dict(sorted(redactor.counts.items()))
    head = f"# vllm-rig report, {when:%Y-%m-%d %H:%M}\n\n{describe(counts)}\n"
    return "\n".join([head, *parts]), counts


def describe(counts: Mapping[str, int]) -> str:
    """What was replaced, in a sentence."""
    if not counts:
        return "Nothing had to be redacted. Read it through before you show it."
    parts = ", ".join(f"{kind}: {count}" for kind, count in counts.items())
    return f"Redacted ({parts}). Read it through before you show it."


def write(path: Path, text: str) -> None:
    """Write a new file that only this user can read.

    Raises:
        RigError: it is there already, or cannot be made.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise RigError(
            "the report's file is there already", where=path, next_step="name another: --out"
        ) from error
    except OSError as error:
        raise _cannot(path, error) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError) -> RigError:
    return RigError(
        f"the report cannot be written: {first_line_of_os_error(error)}",
        where=path,
        next_step="name another file: --out",
    )


def _printable(text: str) -> str:
    """Without colours and control characters, which a terminal would obey."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f\u2028\u2029]", "", plain)


def _fence(body: str) -> str:
    """More backticks than any line of the body has."""
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    return "`" * max(3, longest + 1)
