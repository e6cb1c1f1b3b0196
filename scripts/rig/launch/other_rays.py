"""Ray clusters on this box that are not ours to touch."""

from __future__ import annotations

import os
import pwd

from rig.launch.processes import PROC, Process, all_processes
from rig.launch.runs import MARK_VARIABLE

# Every node of Ray has the first; a head has the second as well.
_PROGRAMS = ("raylet", "gcs_server")


def other_rays() -> list[str]:
    """A sentence for each user whose Ray runs here: nothing of it is used, stopped or changed.

    Those of our own launches are left out: each is as private as this one.
    """
    found: dict[int, list[Process]] = {}
    for process in all_processes():
        if process.name in _PROGRAMS and process.alive and not _is_ours(process.pid):
            try:
                owner = (PROC / str(process.pid)).stat().st_uid
            except OSError:
                continue
            found.setdefault(owner, []).append(process)
    return [
        f"another Ray runs on this box (user {_name(owner)}, "
        + ", ".join(f"{p.name} pid {p.pid}" for p in sorted(ones, key=lambda p: p.pid))
        + "): it is left alone; mind that it may use the same cards"
        for owner, ones in sorted(found.items())
    ]


def _is_ours(pid: int) -> bool:
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return any(line.startswith(f"{MARK_VARIABLE}=".encode()) for line in environment.split(b"\0"))


def _name(uid: int) -> str:
    if uid == os.getuid():
        return f"{uid}, you"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
