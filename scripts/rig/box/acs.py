"""Access Control Services of a PCIe port, from its configuration space.

ACS may send what one card writes to another up to the root complex instead of straight across.
The setting lies in the extended space (PCI Express Base Specification, "ACS Extended
Capability"), of which the kernel shows a user without root nothing.
"""

from __future__ import annotations

from rig.box.chipset import Port, is_intel_pch

_EXTENDED = 0x100
_SPACE = 0x1000
_ACS = 0x000D
_REQUEST_REDIRECT, _COMPLETION_REDIRECT = 1 << 2, 1 << 3


def redirects(config: bytes, port: Port) -> bool | None:
    """Whether a port sends peer requests or completions upstream.

    Args:
        config: its configuration space, as much as could be read (64, 256 or 4096 bytes).
        port: whose it is.

    Returns:
        None when it cannot be known: the extended space was not readable, or is an Intel
        chipset's, some of which keep these bits at another place.
    """
    if len(config) < _SPACE or is_intel_pch(port):
        return None
    at = _EXTENDED
    seen: set[int] = set()
    while at:
        if at in seen or not _EXTENDED <= at <= _SPACE - 8:
            # A list that goes round or out of the space is none to trust. A device that does not
            # answer reads as all ones, and ends here too.
            return None
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(config[at + 6 : at + 8], "little")
            return bool(control & (_REQUEST_REDIRECT | _COMPLETION_REDIRECT))
        at = (header >> 20) & 0xFFC
    return False
