"""What the IOMMU does with the cards' traffic: off, passed through, or translated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rig.box.pci import DEVICES
from rig.box.system import System

Mode = Literal["off", "passthrough", "translated"]
_GROUPS = "/sys/kernel/iommu_groups"
_UNITS = "/sys/class/iommu"


def iommu_mode(system: System, cards: Sequence[str]) -> Mode | None:
    """The mode of the cards' own groups; without cards, of all groups if they agree.

    Inside a virtual machine this is the guest's IOMMU, which says nothing of the host's.

    Args:
        cards: PCI addresses.
    """
    units, groups = system.names(_UNITS), system.names(_GROUPS)
    if units is None and groups is None:
        return None
    if not units and not groups:
        return "off"
    wanted = {group for card in cards if (group := _group_of(system, card)) is not None}
    kinds = {
        (system.text(f"{_GROUPS}/{group}/type") or "").strip() for group in wanted or groups or ()
    }
    modes = {_mode_of_type(kind) for kind in kinds}
    if "translated" in modes and wanted:
        return "translated"  # one card translated is enough to spoil a copy
    if len(modes) == 1 and (mode := modes.pop()) is not None:
        return mode
    return _mode_of_command_line(system)


def _group_of(system: System, card: str) -> str | None:
    try:
        return system.path(f"{DEVICES}/{card}/iommu_group").readlink().name
    except OSError:
        return None


def _mode_of_type(kind: str) -> Mode | None:
    if kind in ("DMA", "DMA-FQ"):
        return "translated"
    return "passthrough" if kind == "identity" else None


def _mode_of_command_line(system: System) -> Mode | None:
    """Older kernels do not show a group's type, but were told it at boot. The last word counts."""
    mode: Mode | None = None
    for word in (system.text("/proc/cmdline") or "").split():
        name, _, value = word.partition("=")
        values = value.split(",")
        if name == "iommu.passthrough":
            mode = "passthrough" if value in ("1", "y") else "translated"
        elif name in ("iommu", "intel_iommu", "amd_iommu"):
            if "off" in values:
                mode = "off"
            elif "pt" in values:
                mode = "passthrough"
            elif "nopt" in values:
                mode = "translated"
    return mode
