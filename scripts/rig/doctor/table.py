"""The one table of checks, in the order of printing."""

from __future__ import annotations

from rig.doctor import cards, driver, host, kernel, links, memory, p2p_gates, p2p_value, power
from rig.doctor.finding import TOPICS, Check

_MODULES = (cards, driver, links, p2p_gates, p2p_value, memory, power, host, kernel)
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in module.CHECKS)


def markdown() -> str:
    """The table for the docs: what each check looks at, its states and why it matters."""
    lines = ["| check | looks at | can say | why |", "|---|---|---|---|"]
    for topic in TOPICS:
        lines.append(f"| **{topic}** | | | |")
        for check in CHECKS:
            if check.topic == topic:
                states = ", ".join(check.states)
                lines.append(f"| `{check.name}` | {check.asks} | {states} | {check.why} |")
    return "\n".join(line.replace("||", "| |") for line in lines)
