"""A box, a verdict and a plan that a launch is made to see in the place of this machine's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rig.box.facts import Box, CardProcess, Host
from rig.errors import RigError
from rig.memory.result import MemoryPlan
from rig.p2p.verdict import Verdict

from .rules.row import box

HOST: dict[str, Any] = {
    "memory_bytes": 64 << 30,
    "memory_available_bytes": 60 << 30,
    "shm_bytes": 16 << 30,
    "shm_free_bytes": 16 << 30,
    "tmp_free_bytes": 64 << 30,
}
FREE = {"memory_free_bytes": 24 << 30}
BUSY: dict[str, Any] = {
    "memory_free_bytes": 1 << 30,
    "processes": (CardProcess(pid=7, memory_bytes=23 << 30),),
}
NO_SHM = Host(**{**HOST, "shm_bytes": 64 << 20, "shm_free_bytes": 64 << 20})


def cards(count: int = 4, **changes: Any) -> Box:
    return box(count, cards={i: {**FREE, **changes} for i in range(count)}, **HOST)


def see(monkeypatch: pytest.MonkeyPatch, seen_box: Box, proven: Verdict | None = None) -> None:
    monkeypatch.setattr("rig.box.read.read_box", lambda: seen_box)
    found = SimpleNamespace(verdict=proven, why_not="never checked")
    monkeypatch.setattr("rig.p2p.store.look_up", lambda *_: found)


def have_plan(monkeypatch: pytest.MonkeyPatch, made: MemoryPlan | RigError) -> None:
    def plan_of_memory(*_: object) -> MemoryPlan:
        if isinstance(made, RigError):
            raise made
        return made

    monkeypatch.setattr("rig.launch.planning.read", lambda *_, **__: None)
    monkeypatch.setattr("rig.launch.planning.plan_of_memory", plan_of_memory)
