"""What CUDA's p2pBandwidthLatencyTest says of peer access; its speeds are for people.

It numbers cards as CUDA does, which need not be the order of their addresses: only where the text
shows the addresses is it known which cards it means.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rig.box.pasted.draft import Draft

_DEVICE = re.compile(
    r"^\s*Device: (\d{1,3}), (.{1,80}?), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2}), "
    r"pciDomainID:\s*([0-9a-f]{1,4})",
    re.IGNORECASE,
)
_ACCESS = re.compile(r"^\s*Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})")


def read_bandwidth_test(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such a test; what it says goes into the draft."""
    addresses: dict[int, str] = {}
    access: dict[tuple[int, int], bool] = {}
    for line in lines:
        if device := _DEVICE.match(line):
            domain, bus, slot = (int(device[i], 16) for i in (5, 3, 4))
            addresses[int(device[1])] = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
            draft.bus_cards.setdefault(addresses[int(device[1])], device[2])
        elif match := _ACCESS.match(line):
            access[int(match[1]), int(match[3])] = match[2] == "CAN"
    order = sorted(addresses.values())
    unplaced = False
    for (first, second), can in access.items():
        if first not in addresses or second not in addresses:
            unplaced = True
            continue
        a, b = sorted((order.index(addresses[first]), order.index(addresses[second])))
        if a != b:
            codes = draft.pairs.setdefault((a, b), {}).setdefault("codes", set())
            codes.add("OK" if can else "NS")
    if unplaced:
        draft.note("p2pBandwidthLatencyTest names cards without their addresses: left out")
    return bool(addresses or access)
