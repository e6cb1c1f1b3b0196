"""Whether a slot hangs on the chipset, whose one uplink (x4, sometimes x8) all its slots share.

`nvidia-smi topo -m` says PHB for such a slot as for a good one. The rule goes by what the ports
above the card are, and says "unknown" whenever it does not know them:

- AMD: the chipset is a PCIe switch of AMD's own below a root port of the CPU. Its ports have the
  ids below (as `lspci -nn` names them: "Chipset ... Upstream Port", "Matisse Switch Upstream").
  A card right under a root port of AMD's, or behind a switch of another maker (a riser with PLX,
  Broadcom, Microchip), is on the CPU. Another bridge of AMD's that is not in the list: unknown.
- Intel: root ports of the PCH are devices 1b, 1c and 1d of their bus, by Intel's chipset
  datasheets since the 5 series (bus 80 rather than 00 on the newest); the CPU's own are
  devices 0 to 7. Other numbers: unknown.
- Another maker, a virtual machine's ports, no port at all: unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rig.box.system import whole_number

_AMD, _INTEL = 0x1022, 0x8086
_AMD_CHIPSET_PORTS = {
    *(0x43B0, 0x43B1, 0x43B2, 0x43B4),  # 300 series and X399
    *(0x43C6, 0x43C7),  # 400 series
    *(0x43E9, 0x43EA),  # 500 series
    *(0x57AD, 0x57A3, 0x57A4),  # X570 and TRX40
    *(0x43F4, 0x43F5),  # 600 series and later
}
_INTEL_PCH_DEVICES = range(0x1B, 0x1E)
_INTEL_CPU_DEVICES = range(0x00, 0x08)


@dataclass(frozen=True)
class Port:
    """A bridge: its address and what it is."""

    address: str
    vendor: int | None
    device: int | None

    @property
    def device_number(self) -> int | None:
        """The middle of "0000:00:1c.4": 0x1c."""
        return whole_number(self.address.rpartition(":")[2].partition(".")[0], 16)

    @property
    def domain(self) -> int | None:
        return whole_number(self.address.partition(":")[0], 16)


def is_intel_pch(port: Port) -> bool:
    """Whether this is a root port of an Intel chipset."""
    return port.vendor == _INTEL and port.device_number in _INTEL_PCH_DEVICES


def behind_chipset(ports: Sequence[Port]) -> bool | None:
    """Whether the way up from a card passes the chipset.

    Args:
        ports: the bridges from the root port down to the one above the card.
    """
    if not ports or any(port.vendor is None or port.device is None for port in ports):
        return None
    root, *below = ports
    if root.domain is None or root.domain > 0xFFFF:  # a drive controller's own numbering (VMD)
        return None
    if root.vendor == _AMD:
        amd = [port.device for port in below if port.vendor == _AMD]
        if any(device in _AMD_CHIPSET_PORTS for device in amd):
            return True
        return None if amd else False
    if root.vendor == _INTEL:
        if is_intel_pch(root):
            return True
        return False if root.device_number in _INTEL_CPU_DEVICES else None
    return None
