"""What `df`, `free`, `uname`, `dmesg`, /proc/cmdline and `ulimit -l` say of the host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rig.box.kernel_log import events_of
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
_FREE = re.compile(r"^\s*Mem:\s+(\S+)\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)\s*$")
_MEMINFO = re.compile(r"^\s*(MemTotal|MemAvailable):\s+(\d{1,15}) kB")
_MEMLOCK = re.compile(
    r"^\s*(?:max locked memory|locked-in-memory size)\s.*?(\d{1,15}|unlimited)\s*$"
)


_LEAST_MEMORY, _MOST_MEMORY = 2 << 30, 16 << 40


def read_host(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds any of these; what they say goes into the draft."""
    before = (dict(draft.host), len(draft.notes))
    unit = ""
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
    # A pasted log may be a part of it, so that no event is no proof that there was none.
    put(draft.host, kernel_events=events_of(lines) or None)
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
        total = _free(row[1])
        put(draft.host, memory_bytes=total)
        if total is not None:
            # The same unit, so that little left is not taken for another one.
            left = size_of(row[2] + "K" if row[1].isdigit() else row[2])
            put(draft.host, memory_available_bytes=left)
    elif row := _MEMINFO.match(line):
        name = "memory_bytes" if row[1] == "MemTotal" else "memory_available_bytes"
        put(draft.host, **{name: size_of(row[2] + "K")})
    elif row := _MEMLOCK.match(line):
        limit = -1 if row[1] == "unlimited" else whole(row[1], 10**12)
        # `ulimit -a` counts in kB.
        put(draft.host, memlock_bytes=limit if limit in (-1, None) else limit * 1024)


def _free(text: str) -> int | None:
    """`free -h` has units; plain `free` counts in kB.

    `free -m`, `-g` and `-b` show numbers without a unit, too: a number that would be no memory of
    such a box in kB is not known.
    """
    if not text.isdigit():
        return size_of(text)
    size = size_of(text + "K")
    return size if size is not None and _LEAST_MEMORY <= size <= _MOST_MEMORY else None
