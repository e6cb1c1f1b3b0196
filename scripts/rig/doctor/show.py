"""Findings as lines for a person, or as one JSON object for a program."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rig.box.facts import Box
from rig.doctor.finding import Finding
from rig.doctor.p2p_gates import which_gate
from rig.doctor.run import counts, worst_first
from rig.errors import RigError, first_line_of_os_error

_WORDS = {"fail": "FAIL", "warn": "warn", "unknown": "unknown", "pass": "pass"}
_INDENT = " " * 10


def say(lines: Iterable[str]) -> None:
    """Print lines for a person or a program, whatever their terminal can show.

    A reader that has enough (`| head`) is no error. A character that the terminal's encoding lacks
    is written as its number.

    Raises:
        RigError: the output cannot be written, e.g. for want of space.
    """
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        stream.writelines(f"{line}\n" for line in lines)
        stream.flush()
    except BrokenPipeError:
        _give_up(stream)
    except OSError as error:
        _give_up(stream)
        raise RigError(
            f"the findings cannot be written: {first_line_of_os_error(error)}",
            next_step="write to another file or disk",
        ) from error


def _give_up(stream: TextIO) -> None:
    """What is still to be written must not fail once more when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def plain(text: str) -> str:
    """A text without control characters: names of processes and pasted text may hold any."""
    return "".join(c if c.isprintable() else "?" for c in text)


def summary(findings: Sequence[Finding]) -> str:
    """One line: how many checks say what."""
    said = ", ".join(f"{number} {state}" for state, number in counts(findings).items())
    return f"{len(findings)} checks: {said}"


def lines(box: Box, findings: Sequence[Finding]) -> list[str]:
    """All findings, worst first, then the gate of P2P and the counts."""
    said = [f"looked at: {box.source}", ""]
    for group in _grouped(worst_first(findings)):
        said += _entry(group)
    if box.notes:
        said += ["", "notes of the reading:", *(f"  {note}" for note in box.notes)]
    said += ["", which_gate(findings), summary(findings)]
    return [plain(line) for line in said]


def _grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Unknown findings of one and the same cause become one entry; the others stay alone."""
    groups: list[list[Finding]] = []
    shared: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.state == "unknown" and finding.seen in shared:
            shared[finding.seen].append(finding)
            continue
        groups.append([finding])
        if finding.state == "unknown":
            shared[finding.seen] = groups[-1]
    return groups


def _entry(group: list[Finding]) -> list[str]:
    first = group[0]
    word = f"{_WORDS[first.state]:<8}"
    if len(group) > 1:
        names = ", ".join(finding.check for finding in group)
        return [f"{word}  {len(group)} checks: {first.seen}", f"{_INDENT}  {names}"]
    said = [f"{word}  {first.topic}, {first.check}: {first.seen}"]
    if first.state in ("fail", "warn"):
        said.append(f"{_INDENT}  why:  {first.why}")
    if first.next_step:
        said.append(f"{_INDENT}  next: {first.next_step}")
    return said


def as_json(box: Box, findings: Sequence[Finding]) -> str:
    """One JSON object: source, findings (worst first), counts, p2p, notes."""
    return json.dumps(
        {
            "source": box.source,
            "findings": [finding.model_dump() for finding in worst_first(findings)],
            "counts": counts(findings),
            "p2p": which_gate(findings),
            "notes": list(box.notes),
        },
        indent=1,
    )
