"""Findings as lines for a person, or as one JSON object for a program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rig.box.facts import Box
from rig.doctor.finding import Finding
from rig.doctor.p2p_gates import which_gate
from rig.doctor.run import counts, worst_first

_WORDS = {"fail": "FAIL", "warn": "warn", "unknown": "unknown", "pass": "pass"}
_INDENT = " " * 10


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
