"""Boxes to plan for, and a stand-in for the engine's Python that plays what a test tells it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rig.box.facts import Box, Bridge, Card, CardProcess, Grant, Host, Level, Link, Pair
from rig.launch.engine_environment import PYTHON_VARIABLE
from rig.layout import layout_of_this_checkout
from rig.pins import Flavour, find_pin, this_arch
from rig.rehearsal.environment import engine_environment
from rig.revision import read_revision
from rig.series.apply import apply
from rig.wheel.build import build_wheel

ENGINE = "0.32.0"
PACKAGES = {"torch": "2.13.0", "nccl": "2.29.3", "vllm": "0.33.0+rig.3", "flashinfer-python": "1"}

# What a rank would do, without torch: the test says which events it writes and how it ends.
_PLAYER = """#!{python}
import json, os, pathlib, signal, subprocess, sys, time
if sys.argv[1] == "-c":  # asked for its packages
    print({packages!r})
    sys.exit()
spec, rank, parent = pathlib.Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
case = json.loads(spec.read_text())
play = json.loads(pathlib.Path({script!r}).read_text())
seen = pathlib.Path({script!r} + ".seen")
with seen.open("a") as file:
    file.write(json.dumps({{"case": case, "rank": rank, "env": dict(os.environ)}}) + "\\n")
def say(event, **facts):
    with spec.with_name(f"rank{{rank}}.jsonl").open("a") as file:
        file.write(json.dumps({{"event": event, **facts}}) + "\\n")
say("ready", bus_ids=play.get("bus_ids", []))
bad = play.get(case["way"], play.get("*", {{}}))
if bad.get("rank", rank) != rank or bad.get("cards", case["cards"]) != case["cards"]:
    bad = {{}}
for size in case["sizes"]:
    say("begin", size=size)
    if size == bad.get("size", case["sizes"][0]):
        exec(bad.get("do", ""))
    say("done", size=size, wrong=bad.get("wrong", ""), gb_per_s=12.5)
say("transport", used=play.get("used", {{}}).get(case["way"], []))
say("end")
exec(bad.get("at_end", ""))
"""


@pytest.fixture
def player(tmp_path: Path) -> Callable[..., Path]:
    """Make a stand-in: `player({"copy": {"do": "...", "size": ..., "rank": ...}})`; its path."""

    def make(script: dict[str, object] | None = None) -> Path:
        told = tmp_path / "play.json"
        told.write_text(json.dumps(script or {}))
        program = tmp_path / "python"
        program.write_text(
            _PLAYER.format(python=sys.executable, script=str(told), packages=json.dumps(PACKAGES))
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    return make


@pytest.fixture
def seen(tmp_path: Path) -> Callable[[], list[dict[str, object]]]:
    """What the stand-in was started with, one for each rank."""

    def read() -> list[dict[str, object]]:
        file = tmp_path / "play.json.seen"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return read


def a_box(
    count: int,
    *,
    level: Level | None = "PHB",
    capabilities: Sequence[tuple[int, int] | None] = (),
    p2p: Grant | None = "granted",
    nvlinks: Sequence[tuple[int, int]] = (),
    processes: tuple[CardProcess, ...] | None = (),
    uuids: bool = True,
    host: Host | None = None,
) -> Box:
    """A box of that many 3090s, as if it had been read."""
    cards = tuple(
        Card(
            index=i,
            bus_id=f"0000:{i + 1:02x}:00.0",
            name="RTX 3090",
            uuid=f"GPU-{i:04d}" if uuids else None,
            compute_capability=capabilities[i] if capabilities else (8, 6),
            link=Link(generation_max=4, width_max=16, slot_generation_max=4, slot_width_max=16),
            processes=processes,
        )
        for i in range(count)
    )
    pairs = tuple(
        Pair(
            first=a,
            second=b,
            level="NV" if (a, b) in nvlinks else level,
            p2p=p2p,
            p2p_why="GNS" if p2p == "refused" else None,
        )
        for a in range(count)
        for b in range(a + 1, count)
    )
    host = host or Host(driver_version="580.95.05", kernel="6.12.1", iommu="off")
    bridges = (Bridge(bus_id="0000:00:01.0", acs_redirects=False),)
    return Box(source="a test", cards=cards, pairs=pairs, bridges=bridges, host=host)


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """A Python with torch: the engine's, or what VLLM_RIG_PYTHON names."""
    if named := os.environ.get(PYTHON_VARIABLE):
        return Path(named)
    layout = layout_of_this_checkout()
    pin = find_pin(layout, ENGINE)
    tree = apply(layout, pin)
    wheel = build_wheel(layout, tree, Flavour.CPU, this_arch(), read_revision(layout)).path
    return engine_environment(layout, pin, wheel).python
