"""`nvidia-smi -L` and `--query-gpu=... --format=csv`, which the doctor itself asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rig.box.pasted.draft import (
    MOST_CARDS,
    Draft,
    address_of,
    number_of,
    put,
    size_of,
    whole,
    yes_or_no,
)

_LISTED = re.compile(
    r"^GPU (\d{1,3}): (\S.{1,80}?) \(UUID: (GPU-[0-9A-Za-z-]{1,60}|<[\w-]{1,20}>)\)"
)


def _capability(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,2})\.(\d)", text)
    return (int(found[1]), int(found[2])) if found else None


def _rounded(text: str) -> int | None:
    number = number_of(text)
    return None if number is None else round(number)


# A column's name without its unit: (the fact, how it is read).
_COLUMNS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", lambda text: text or None),
    "gpu_name": ("name", lambda text: text or None),
    "uuid": ("uuid", lambda text: text or None),
    "compute_cap": ("compute_capability", _capability),
    "memory.total": ("memory_bytes", size_of),
    "memory.free": ("memory_free_bytes", size_of),
    "display_active": ("display_active", yes_or_no),
    "persistence_mode": ("persistence", yes_or_no),
    "mig.mode.current": ("mig", yes_or_no),
    "power.limit": ("power_limit_w", number_of),
    "power.default_limit": ("power_default_w", number_of),
    "power.max_limit": ("power_max_w", number_of),
    "clocks.current.graphics": ("graphics_clock_mhz", _rounded),
    "clocks.max.graphics": ("graphics_clock_max_mhz", _rounded),
    "utilization.gpu": ("utilisation_percent", _rounded),
    "temperature.gpu": ("temperature_c", _rounded),
    "pcie.link.width.current": ("link_width_now", lambda text: whole(text, 32)),
    "pcie.link.width.max": ("link_width_max", lambda text: whole(text, 32)),
    "pcie.link.gen.current": ("link_generation_now", lambda text: whole(text, 9)),
    "pcie.link.gen.gpucurrent": ("link_generation_now", lambda text: whole(text, 9)),
    "pcie.link.gen.max": ("link_generation_max", lambda text: whole(text, 9)),
}
_PLACES = ("index", "pci.bus_id", "gpu_bus_id", "driver_version", "memory.used")


def read_smi_csv(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such a list; what it says goes into the draft."""
    found = False
    columns: list[str] = []
    for line in lines:
        if listed := _LISTED.match(line.strip()):
            found = True
            if (index := whole(listed[1], MOST_CARDS - 1)) is not None:
                put(draft.card(index), name=listed[2], uuid=listed[3])
            continue
        cells = [cell.strip() for cell in line.split(",")]
        names = [cell.partition(" [")[0] for cell in cells]
        if "index" in names and all(name in _COLUMNS or name in _PLACES for name in names):
            columns = names
        elif columns and len(cells) == len(columns):
            found = _row(dict(zip(columns, cells, strict=True)), draft) or found
        elif columns and line.strip():
            columns = []
    return found


def _row(row: Mapping[str, str], draft: Draft) -> bool:
    index = whole(row["index"], MOST_CARDS - 1)
    if index is None:
        return False
    facts = draft.card(index)
    for name, text in row.items():
        if name in _COLUMNS:
            fact, read = _COLUMNS[name]
            put(facts, **{fact: read(text)})
    address = address_of(row.get("pci.bus_id") or row.get("gpu_bus_id") or "")
    if address:
        draft.addresses.setdefault(index, address)
    if re.fullmatch(r"[\d.]{3,30}", row.get("driver_version", "")):
        put(draft.host, driver_version=row["driver_version"])
    total, used = size_of(row.get("memory.total")), size_of(row.get("memory.used"))
    if total is not None and used is not None and used <= total:
        put(facts, memory_free_bytes=total - used)
    return True
