"""NCCL's own lines: version, ranks on cards, the way between each two of them.

The ways are only printed with NCCL_DEBUG=INFO. NCCL's spelling has changed: older ones have no
connection index ("Channel 00 : 1[1] -> 2[2]"), and a way can hold a space ("P2P/direct pointer").
"""

from __future__ import annotations

import re

from rig.engine_log.facts import Nccl, RankCard, Transport
from rig.engine_log.lines import Line

_VERSION = re.compile(r"(?:vLLM is using nccl==|\bNCCL version )(\d{1,3}\.\d{1,3}(?:\.\d{1,4})?)")
_CHANNEL = re.compile(
    r"Channel (\d{1,4})(?:/\d{1,3})? : (\d{1,5})\[[0-9a-f]{1,12}\] -> (\d{1,5})\[[0-9a-f]{1,12}\]"
    r"(?: \[\w{1,10}\])? via ((?:P2P|SHM|NET|COLLNET)\S{0,60}(?: pointer)?)"
)
_INIT = re.compile(
    r"ncclCommInitRank\w{0,20} comm \S{1,24} rank (\d{1,5}) nranks (\d{1,5})"
    r"(?: cudaDev (\d{1,3}))?(?: nvmlDev (\d{1,3}))?(?: busId ([0-9a-f]{1,12}))?.{0,80}?"
    r"(?:Init (?:START|COMPLETE))?",
    re.IGNORECASE,
)
_DISABLED = re.compile(r"P2P is disabled between connected GPUs (\d{1,5}) and (\d{1,5})")


class NcclReader:
    """Give it each line, then ask for the facts."""

    def __init__(self) -> None:
        self._version: str | None = None
        self._info = False
        self._connected = False
        self._ways: dict[tuple[int, int], dict[str, None]] = {}
        self._channels: dict[tuple[int, int], set[int]] = {}
        self._cards: dict[int, dict[int, RankCard]] = {}  # by size of the communicator
        self._disabled: dict[tuple[int, int], None] = {}

    def see(self, line: Line) -> None:
        said = line.said
        if "nccl" not in said and "NCCL" not in said:
            return
        if match := _VERSION.search(said):
            self._version = match[1]
        if "NCCL INFO" not in said:
            return
        self._info = True
        self._connected |= "Connected all rings" in said or "Init COMPLETE" in said
        if match := _CHANNEL.search(said):
            pair = int(match[2]), int(match[3])
            self._ways.setdefault(pair, {}).setdefault(match[4])
            self._channels.setdefault(pair, set()).add(int(match[1]))
        elif match := _INIT.search(said):
            device = match[4] or match[3]
            card = RankCard(
                rank=int(match[1]),
                device=int(device) if device else None,
                bus_id=pci_address(match[5]) if match[5] else None,
            )
            self._cards.setdefault(int(match[2]), {})[card.rank] = card
        elif match := _DISABLED.search(said):
            self._disabled.setdefault((int(match[1]), int(match[2])))

    def facts(self) -> Nccl:
        # Groups have communicators of their own, with ranks of their own: the largest is the world.
        world = self._cards[max(self._cards)] if self._cards else {}
        return Nccl(
            version=self._version,
            info=self._info,
            transports=tuple(
                Transport(
                    first=first,
                    second=second,
                    ways=tuple(ways),
                    channels=len(self._channels[first, second]),
                )
                for (first, second), ways in sorted(self._ways.items())
            ),
            cards=tuple(card for _, card in sorted(world.items())),
            p2p_disabled=tuple(self._disabled),
            connected=self._connected,
        )


def pci_address(bus_id: str) -> str:
    """NCCL's "4f000" is bus, device and function in hexadecimal: "0000:4f:00.0"."""
    number = int(bus_id, 16)
    domain, bus = number >> 20, number >> 12 & 0xFF
    return f"{domain:04x}:{bus:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"
