"""What the kernel's log says of cards, links and the IOMMU since this boot.

Many systems keep the log from users (kernel.dmesg_restrict). The journal shows the same to whoever
is in its group ("adm" or "systemd-journal"), so it is asked second. Neither answers: unknown.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence

from rig.box.facts import Box, KernelEvent

_COMMANDS = (
    ("dmesg",),
    ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=cat"),
)
# For each of the two: the doctor as a whole takes less than 3 s.
LIMIT_S = 1.0
_ADDRESS = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid \(PCI:({_ADDRESS})\): (\d{{1,4}})(?:, (.{{1,160}}))?", re.I)
_FAULT = re.compile(r"(?:AMD-Vi.{0,60}IO_PAGE_FAULT|DMAR:.{0,80}fault (?:addr|reason))", re.I)
# "device=0000:09:00.0", "Request device [09:00.0]", or the driver's prefix "nvidia 0000:09:00.0:".
_FAULT_AT = re.compile(
    rf"\bdevice[= ]\[?({_ADDRESS})(?=[\s\]])|\s({_ADDRESS}): (?:AMD-Vi|DMAR)", re.I
)
# The port that was told says "received", then the device says what it was: one error, two lines.
_ERROR = re.compile(rf"\b({_ADDRESS}): (?:AER: )?PCIe Bus Error: ", re.I)
_TOLD = re.compile(
    rf"\b({_ADDRESS}): AER: .{{0,40}}error.{{0,20}}received(?:(?: from)?:? ({_ADDRESS}))?", re.I
)
_UNCORRECTED = re.compile(r"uncorrect", re.I)
_WORSE = "uncorrected"


def address_of(text: str) -> str:
    """ "0000:09:00" or "09:00.0" as "0000:09:00.0"."""
    with_domain = text.lower() if text.count(":") == 2 else f"0000:{text.lower()}"
    return with_domain if "." in with_domain else f"{with_domain}.0"


def events_of(lines: Iterable[str]) -> tuple[KernelEvent, ...]:
    """The events of a log, equal ones counted; the text is of the last one, or of the worst."""
    found: dict[tuple[object, ...], KernelEvent] = {}
    told: dict[tuple[object, ...], KernelEvent] = {}
    for line in lines:
        event = _event(line)
        if event is not None:
            _count(found, event)
        elif "AER" in line and (port := _TOLD.search(line)):
            _count(told, _pcie_error(port[2] or port[1], line))
    for key, event in told.items():
        found.setdefault(key, event)
    return tuple(found.values())


def _count(found: dict[tuple[object, ...], KernelEvent], event: KernelEvent) -> None:
    key = (event.kind, event.where, event.code)
    before = found.get(key)
    if before is not None:
        text = before.text if before.text == _WORSE else event.text
        event = event.model_copy(update={"count": before.count + 1, "text": text})
    found[key] = event


def _pcie_error(where: str, line: str) -> KernelEvent:
    text = _WORSE if _UNCORRECTED.search(line) else "corrected"
    return KernelEvent(kind="pcie-error", where=address_of(where), text=text)


def _event(line: str) -> KernelEvent | None:
    if "NVRM" in line and (xid := _XID.search(line)):
        text = "".join(c for c in (xid[3] or "").strip() if c.isprintable())
        return KernelEvent(kind="xid", where=address_of(xid[1]), code=int(xid[2]), text=text)
    if _FAULT.search(line):
        at = _FAULT_AT.search(f" {line}")
        where = None if at is None else address_of(at[1] or at[2])
        return KernelEvent(kind="iommu-fault", where=where)
    if error := _ERROR.search(line):
        return _pcie_error(error[1], line)
    return None


def with_kernel_log(box: Box, read: Callable[[], str | None] | None = None) -> Box:
    """This machine's box with the events of its kernel's log, unless it has them.

    Not a part of `read_box`: the journal can take some tenths of a second, and only the doctor and
    the report ask.
    """
    if box.host.kernel_events is not None:
        return box
    log = (read or kernel_log_of_this_machine)()
    if log is None:
        return box
    events = events_of(log.splitlines())
    host = box.host.model_copy(update={"kernel_events": events})
    return box.model_copy(update={"host": host})


def kernel_log_of_this_machine(
    commands: Sequence[tuple[str, ...]] = _COMMANDS, limit_s: float = LIMIT_S
) -> str | None:
    """The kernel's log since the boot, or None where this user may not read it."""
    for command in commands:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                check=False,
                timeout=limit_s,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        # A journal without a group's right to it exits with 0 and shows nothing.
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.decode(errors="replace")
    return None
