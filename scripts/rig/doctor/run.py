"""All checks over one box. Pure: reading the box and its surroundings is the caller's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import STATES, Finding
from rig.doctor.table import CHECKS


def examine(box: Box, rig: Rig | None = None, context: Context | None = None) -> list[Finding]:
    """Every check's finding, in the table's order.

    Args:
        box: what was seen.
        rig: what its owner says; None: nobody said.
        context: what is wanted of it; None: nothing is known of that.
    """
    context = context or Context()
    return [check.run(box, rig, context) for check in CHECKS]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by state, worst first; the table's order among equals."""
    return sorted(findings, key=lambda finding: STATES.index(finding.state))


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings of each state, worst first."""
    found = Counter(finding.state for finding in findings)
    return {state: found[state] for state in STATES}


def exit_status(findings: Iterable[Finding]) -> int:
    """0: no check failed; 1: one did. Unknown is no failure, and no pass either."""
    return int(any(finding.state == "fail" for finding in findings))
