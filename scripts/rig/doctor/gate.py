"""The checks that `serve` makes before it starts anything.

Only what makes a start hopeless (it would end after minutes of loading) or unsafe (it may take the
box down) is asked: a failure stops the start, a warning is printed, an unknown is passed over,
since many facts cannot be seen from a container and a start is then the way to find out.
"""

from __future__ import annotations

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import Finding
from rig.doctor.table import CHECKS

# The check and why it is asked here. What is missing on purpose: P2P, IOMMU and custom all-reduce
# (serve uses none of it unless `rig p2p` proved it on this box), links, NUMA and clocks (they
# cost speed, not the start), ports (serve reserves its port itself), Ray (serve asks the
# environment itself), /tmp (the same).
GATE: dict[str, str] = {
    "cards-seen": "hopeless: no rank finds a card",
    "cards-enough": "hopeless: a rank would wait for a card for ever",
    "cards-alike": "warns: the plan is made for the smallest",
    "card-generation": "hopeless: no kernels for this card",
    "cards-idle": "hopeless: the engine ends when its share of a card is not free",
    "cards-drained": "hopeless, as above, or a quarter of the KV cache is lost in silence",
    "driver-cuda": "hopeless: the first CUDA call fails",
    "driver-branch": "hopeless: the same",
    "host-memory": "unsafe: page-locked memory that is not there ends other processes",
    "cgroup": "hopeless: the kernel ends the engine at the limit",
    "memlock": "warns: offloading may fall back to slow copies",
    "shm": "hopeless: vLLM's queues do not fit",
    "wsl": "hopeless: what must be page-locked cannot be",
    "power-supply": "unsafe: a supply that trips takes the box down",
    "tmp-space": "hopeless: Ray cannot write its sockets and logs",
}


def gate(box: Box, rig: Rig | None, context: Context) -> list[Finding]:
    """The findings that a start must heed: those that fail or warn, failures first.

    With `context.cards_wanted == 0` (a rehearsal) no card is judged. Pure; 1 ms.
    """
    findings = [
        check.run(box, rig, context)
        for check in CHECKS
        if check.name in GATE and not (check.needs_cards and context.cards_wanted == 0)
    ]
    fails = [finding for finding in findings if finding.state == "fail"]
    return fails + [finding for finding in findings if finding.state == "warn"]
