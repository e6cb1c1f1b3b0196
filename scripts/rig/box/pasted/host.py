"""What `df`, `free`, `uname`, `dmesg`, /proc/cmdline and `ulimit -l` say of the host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rig.box.pasted.draft import Draft, put, size_of, whole

_DF_HEAD = re.compile(r"^\s*Filesystem\s+(\S+)\s+Used\s+Avail")
_DF_ROW = re.compile(
    r"^\s*(\S{1,200})\s+(\d[\d.,]*[KMGTP]?i?)\s+(\d[\d.,]*[KMGTP]?i?)\s+(\d[\d.,]*[KMGTP]?i?)"
    r"\s+\d{1,3}%\s+(/\S{0,200})$"
)
_UNAME = re.compile(r"^\s*Linux \S{1,80} (\d{1,2}\.\d{1,3}[\w.+-]{0,60}) #\d")
_LINUX = re.compile(r"\bLinux version (\d{1,2}\.\d{1,3}[\w.+-]{0,60})")
_DRIVER = re.compile(r"NVIDIA UNIX .{0,40}?Kernel Module(?: for \S+)?\s+(\d{3}\.[\d.]{2,12})")
_CMDLINE = re.compile(r"(?:BOOT_IMAGE=|Command line: |Kernel command line: |\broot=UUID=)")
_DOMAIN = re.compile(r"iommu: Default domain type: (Passthrough|Translated)", re.IGNORECASE)
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-f:.]{6,16})\): (\d{1,4})(?:, (.{1,120}))?", re.I)
_FAULT = re.compile(r"(?:AMD-Vi|DMAR).{0,60}(?:IO_PAGE_FAULT|[Ff]ault)")
_AER = re.compile(r"pcieport ([0-9a-f:.]{7,12}): .{0,30}AER")
_FREE = re.compile(r"^\s*Mem:\s+(\S+)\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)\s*$")
_MEMINFO = re.compile(r"^\s*(MemTotal|MemAvailable):\s+(\d{1,15}) kB")
_MEMLOCK = re.compile(
    r"^\s*(?:max locked memory|locked-in-memory size)\s.*?(\d{1,15}|unlimited)\s*$"
)


def read_host(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds any of these; what they say goes into the draft."""
    before = (dict(draft.host), len(draft.notes))
    unit = ""
    events: Counter[str] = Counter()
    for line in lines:
        if head := _DF_HEAD.match(line):
            unit = "K" if head[1].startswith("1K") else ""
        elif row := _DF_ROW.match(line):
            _df(row, unit, draft)
        elif match := _UNAME.match(line) or _LINUX.search(line):
            put(draft.host, kernel=match[1])
            if "microsoft" in match[1].lower():
                put(draft.host, wsl=True)
        elif driver := _DRIVER.search(line):
            put(draft.host, driver_version=driver[1])
        if _CMDLINE.search(line):
            _cmdline(line, draft)
        elif domain := _DOMAIN.search(line):
            kind = "passthrough" if domain[1].lower() == "passthrough" else "translated"
            put(draft.host, iommu=kind)
        _memory(line, draft)
        _event(line, events)
    for sentence, count in events.most_common(20):
        draft.note(f"kernel log: {sentence}" + (f" ({count} times)" if count > 1 else ""))
    return before != (draft.host, len(draft.notes))


def _df(row: re.Match[str], unit: str, draft: Draft) -> None:
    total, free = (size_of(row[i] + (unit if row[i].isdigit() else "")) for i in (2, 4))
    if row[5] == "/dev/shm":
        put(draft.host, shm_bytes=total, shm_free_bytes=free)
    elif row[5] == "/tmp":
        put(draft.host, tmp_free_bytes=free)


def _cmdline(line: str, draft: Draft) -> None:
    words = set(line.split())
    if words & {"iommu=off", "amd_iommu=off", "intel_iommu=off"}:
        put(draft.host, iommu="off")
    elif words & {"iommu=pt", "iommu.passthrough=1"}:
        put(draft.host, iommu="passthrough")


def _memory(line: str, draft: Draft) -> None:
    if row := _FREE.match(line):
        put(draft.host, memory_bytes=_free(row[1]), memory_available_bytes=_free(row[2]))
    elif row := _MEMINFO.match(line):
        name = "memory_bytes" if row[1] == "MemTotal" else "memory_available_bytes"
        put(draft.host, **{name: size_of(row[2] + "K")})
    elif row := _MEMLOCK.match(line):
        limit = -1 if row[1] == "unlimited" else whole(row[1], 10**12)
        # `ulimit -a` counts in kB.
        put(draft.host, memlock_bytes=limit if limit in (-1, None) else limit * 1024)


def _free(text: str) -> int | None:
    """`free -h` has units; plain `free` counts in kB."""
    return size_of(text + "K" if text.isdigit() else text)


def _event(line: str, events: Counter[str]) -> None:
    if xid := _XID.search(line):
        events[f"Xid {xid[2]} of the card at {xid[1].lower()}: {(xid[3] or '').strip()}"] += 1
    elif _FAULT.search(line):
        events["the IOMMU has refused accesses of a device (IO_PAGE_FAULT)"] += 1
    elif aer := _AER.search(line):
        events[f"PCIe errors at {aer[1].lower()} (AER)"] += 1
