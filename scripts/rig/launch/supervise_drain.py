"""Wait until the cards have given back the memory of processes that have ended.

The driver frees a card's memory some time after the process that held it is gone (seconds after a
crash with large pinned buffers). An engine started meanwhile sees too little and refuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rig.box.facts import Box

# What a driver itself may hold of an idle card (its own structures, ECC): not measured by us,
# generous, and far below what an engine needs. A card with a display holds its frames as well.
DRIVER_BYTES = 1 << 30
DISPLAY_BYTES = 2 << 30
_POLL_S = 1.0


@dataclass(frozen=True)
class Undrained:
    """Memory of a card that is in use though no process holds it."""

    card: int
    unheld_bytes: int

    def __str__(self) -> str:
        return f"card {self.card}: {self.unheld_bytes / 2**30:.1f} GiB"


def undrained(box: Box) -> list[Undrained]:
    """The cards with more memory in use than their processes and their driver account for.

    A card of which the memory or the processes are unknown is not among them: nothing can be
    said, nor waited for. So is one with a process of unknown size.
    """
    found: list[Undrained] = []
    for card in box.cards or ():
        if card.memory_bytes is None or card.memory_free_bytes is None or card.processes is None:
            continue
        sizes = [process.memory_bytes for process in card.processes]
        if None in sizes:
            continue
        used = card.memory_bytes - card.memory_free_bytes
        unheld = used - sum(size for size in sizes if size is not None)
        # An unknown display may be one: waiting for its frames would be in vain.
        allowed = DRIVER_BYTES if card.display_active is False else DISPLAY_BYTES
        if unheld > allowed:
            found.append(Undrained(card.index, unheld))
    return found


def wait_for_drained(
    read: Callable[[], Box], tell: Callable[[str], None], timeout_s: float = 60.0
) -> list[str]:
    """Wait, at most so long, until no card has memory in use that no process holds.

    Args:
        read: looks at the box.
        tell: told one line while there is something to wait for.

    Returns:
        A sentence for each card that has not drained; the memory plan decides what fits beside it.
    """
    began = time.monotonic()
    while True:
        waiting = undrained(read())
        waited_s = time.monotonic() - began
        if not waiting:
            if waited_s > _POLL_S:
                tell(f"the cards' memory has drained after {waited_s:.0f} s")
            return []
        if waited_s > timeout_s:
            return [
                f"{card} in use after {waited_s:.0f} s though no process holds it; "
                "`nvidia-smi` shows it, a reset of the card or a reboot frees it"
                for card in waiting
            ]
        shown = ", ".join(map(str, waiting))
        tell(f"waiting, {waited_s:.0f} s: memory of ended processes drains ({shown})")
        time.sleep(_POLL_S)
