"""What the kernel's log says of the cards: Xids, IOMMU faults, PCIe errors on their way."""

from __future__ import annotations

from rig.box.facts import Box, KernelEvent
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import Check, Said, combine

# What the numbers mean: docs.nvidia.com/deploy/xid-errors (48: memory error that ECC cannot
# correct; 62: its own controller halted; 79: it has fallen off the bus; 95: uncontained memory
# error; 119, 120: its system processor does not answer, or failed). That a start is hopeless after
# these until the card or the box was reset is a judgement of these tools.
_GONE = (48, 62, 79, 95, 119, 120)
_RECOVERY = 154  # says what the card needs: nothing, a reset, a restart
_ENDED = 45  # work was taken back when a program ended, as after Ctrl-C

_RESTART = "restart the box; if it comes again: seat the card and its power cables anew, lock "
_RESTART += "its clocks, try without the riser"
_READ = "`sudo dmesg --ctime | grep -E 'Xid|AER|IO_PAGE_FAULT|DMAR'`"


def _xid(event: KernelEvent) -> Said:
    seen = f"Xid {event.code}" + f" ({event.text})" * bool(event.text)
    seen += f", {event.count} times" * (event.count > 1)
    if event.code == _ENDED:
        return Said("pass", f"{seen}: a program was ended")
    if event.code == _RECOVERY:
        # "changed from 0x0 (None) to 0x2 (Node Reboot Required)": what it needs now stands last.
        now = event.text.rpartition(" to ")[2]
        if "none" in now.lower():
            return Said("pass", f"{seen}: recovered")
        return Said("fail", seen, _RESTART)
    if event.code in _GONE:
        return Said("fail", seen, _RESTART)
    return Said("warn", seen, f"see when and by which program: {_READ}; NVIDIA lists the numbers")


def _way(box: Box) -> set[str] | None:
    """The addresses of the cards and of the bridges above them; None: not known of all."""
    if box.cards is None or any(card.bridges is None for card in box.cards):
        return None
    return {bus for card in box.cards for bus in (card.bus_id, *(card.bridges or ()))}


def _fault(event: KernelEvent, box: Box) -> Said:
    cards = None if box.cards is None else {card.bus_id for card in box.cards}
    # Only NVIDIA's cards have Xids: a text without the list of cards shows them so.
    is_card = any(e.kind == "xid" and e.where == event.where for e in box.host.kernel_events or ())
    seen = "the IOMMU refused its accesses" + f", {event.count} times" * (event.count > 1)
    if event.where is not None and not is_card and cards is not None and event.where not in cards:
        return Said("pass", f"{seen}: no card")
    step = "leave P2P off, as `serve` does, or give the kernel `iommu=pt`; then restart the box"
    if event.where is None:
        return Said(
            "warn", "the IOMMU refused a device's accesses, which one it does not say", step
        )
    known = is_card or cards is not None
    return Said("fail" if known else "warn", seen if known else f"{seen}; no card is known", step)


def _pcie(event: KernelEvent, box: Box) -> Said:
    way = _way(box)
    seen = f"{event.count} {event.text} PCIe errors"
    if way is None:
        return Said("warn", f"{seen}; not known whether it is on the way to a card", _READ)
    if event.where not in way:
        return Said("pass", f"{seen}, not on the way to a card")
    step = "seat card and riser anew, or set the slot one PCIe generation lower in the BIOS; then "
    return Said("warn", f"{seen} on the way to a card", f"{step}look again: {_READ}")


def kernel_log(box: Box, rig: Rig | None, context: Context) -> Said:
    """Trouble that the kernel has logged since it began."""
    events = box.host.kernel_events
    if events is None:
        return Said("unknown", "the kernel's log is not known")
    if not events:
        return Said("pass", "no Xid, IOMMU fault or PCIe error in what it still holds")

    def judge(event: KernelEvent) -> Said:
        if event.where is None and event.kind != "iommu-fault":
            return Said("warn", f"{event.kind} of a device that is not named", _READ)
        if event.kind == "xid":
            return _xid(event)
        return _fault(event, box) if event.kind == "iommu-fault" else _pcie(event, box)

    return combine(((event.where or "not named", judge(event)) for event in events), "device")


CHECKS = (
    Check(
        "kernel-log",
        "host",
        kernel_log,
        "Xids, IOMMU faults and PCIe errors in the kernel's log of this boot",
        "A card that has failed once fails again under load, and some failures end only with a "
        "restart.",
        f"{_READ}, or join the group adm",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
)
