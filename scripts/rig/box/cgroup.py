"""The memory that this process's control groups allow, with all groups above it (v1 and v2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from rig.box.system import System, whole_number

UNLIMITED = -1
_NO_LIMIT_V1 = 1 << 60  # v1 writes "none" as a number near 2**63, by page size


@dataclass(frozen=True)
class MemoryLimit:
    """`limit` is -1 when there is none. `used` is counted in the group that has the limit.

    Used bytes leave out file pages that the kernel would drop first (inactive_file), as container
    runtimes count it. `used` is None when it could not be read.
    """

    limit: int
    used: int | None


@dataclass(frozen=True)
class _Mount:
    point: str
    root: str
    version: int


def memory_limit(system: System) -> MemoryLimit | None:
    """The limit with the least room left, or None when no control group can be read."""
    paths = _paths(system.text("/proc/self/cgroup") or "")
    found: list[MemoryLimit] = []
    looked = False
    for mount in _mounts(system.text("/proc/self/mountinfo") or ""):
        path = paths.get(mount.version)
        if path is None:
            continue
        for folder in _folders(mount, path):
            if not system.exists(folder):
                continue  # another namespace's name for it; the mount point itself is ours
            looked = True
            limit = _limit(system, folder, mount.version)
            if limit is not None:
                found.append(limit)
    if not looked:
        return None
    if not found:
        return MemoryLimit(UNLIMITED, None)
    return min(found, key=lambda one: one.limit - (one.used or 0))


def _paths(text: str) -> dict[int, str]:
    """The process's group in the memory hierarchy, by version."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found[2] = path
        elif "memory" in controllers.split(","):
            found[1] = path
    return found


def _mounts(text: str) -> list[_Mount]:
    """Where the memory hierarchies are mounted. See proc(5) for the fields of mountinfo."""
    found: list[_Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        root, point = _plain(fields[3]), _plain(fields[4])
        if kind[0] == "cgroup2":
            found.append(_Mount(point, root, 2))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.append(_Mount(point, root, 1))
    return found


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _folders(mount: _Mount, path: str) -> list[str]:
    """The group's folder and those above it, as far up as the mount shows."""
    point = PurePosixPath(mount.point)
    inside = PurePosixPath(path)
    if ".." in inside.parts:
        return [str(point)]
    try:
        # In a container without its own namespace the mount's root is the group itself.
        relative = inside.relative_to(mount.root)
    except ValueError:
        relative = PurePosixPath()
    return [str(point / relative), *(str(point / above) for above in relative.parents)]


def _limit(system: System, folder: str, version: int) -> MemoryLimit | None:
    names = (
        ("memory.max", "memory.current", "inactive_file")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    limit = whole_number(system.text(f"{folder}/{names[0]}"))
    if version == 1:
        stated = _statistic(system, folder, "hierarchical_memory_limit")
        limit = min((one for one in (limit, stated) if one is not None), default=None)
        if limit is not None and limit >= _NO_LIMIT_V1:
            return None
    if limit is None:
        return None
    used = whole_number(system.text(f"{folder}/{names[1]}"))
    if used is not None:
        used = max(0, used - (_statistic(system, folder, names[2]) or 0))
    return MemoryLimit(limit, used)


def _statistic(system: System, folder: str, name: str) -> int | None:
    for line in (system.text(f"{folder}/memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return whole_number(value)
    return None
