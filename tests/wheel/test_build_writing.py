"""Writing a wheel: faults that are found, a full disk, a killed build, two builds at once."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rig.wheel.build as build_module
from rig.errors import RigError
from rig.wheel.archive import Archive
from rig.wheel.inspect import inspect_wheel
from rig.wheel.plan import Plan

from .wheel_fabric import CHANGES, LIBRARY, Fabric

FORK = multiprocessing.get_context("fork")


def flip_copied(path: Path, _: Plan) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(LIBRARY[1000:1010])] ^= 1
    path.write_bytes(data)


def flip_patched(path: Path, _: Plan) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"key = 'GPU'", b"key = 'CPU'"))


def flip_date(path: Path, plan: Plan) -> None:
    with Archive(path) as archive:
        record = archive.find("vllm/__init__.py").record
    data = bytearray(path.read_bytes())
    data[data.index(record) + 12] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("fault", [flip_copied, flip_patched, flip_date])
def test_a_fault_of_the_writer_is_found_and_nothing_is_published(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path, Plan], None]
) -> None:
    right = build_module.write_plan

    def wrong(archive: Archive, plan: Plan, target: Path) -> None:
        right(archive, plan, target)
        before = target.read_bytes()
        fault(target, plan)
        assert target.read_bytes() != before

    applied = fabric.series(CHANGES)
    published = fabric.build(applied)
    monkeypatch.setattr(build_module, "write_plan", wrong)
    with pytest.raises(RigError):
        fabric.build(applied)
    assert fabric.dist_files() == [published.path.name]
    inspect_wheel(published.path, full=True)


@pytest.mark.parametrize("skipped", ["vllm/empty.py", "vllm/rig/new.py"])
def test_a_plan_that_forgets_a_file_is_found(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    right = build_module.write_plan

    def wrong(archive: Archive, plan: Plan, target: Path) -> None:
        steps = tuple(s for s in plan.steps if s.name != skipped)
        right(archive, Plan(plan.name, steps, plan.provenance), target)

    monkeypatch.setattr(build_module, "write_plan", wrong)
    with pytest.raises(RigError, match=skipped):
        fabric.build(fabric.series(CHANGES))


def test_a_full_disk_leaves_nothing_and_the_next_run_heals(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(RigError, match="cannot write vllm-1") as caught:
            fabric.build(applied)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "free some space" in str(caught.value)
    assert fabric.dist_files() == []
    assert inspect_wheel(fabric.build(applied).path, full=True).members > 10


def test_an_output_folder_that_is_a_file(fabric: Fabric) -> None:
    fabric.layout.dist.write_text("not a folder")
    with pytest.raises(RigError, match="cannot write") as caught:
        fabric.build(fabric.series(CHANGES))
    assert str(fabric.layout.dist) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_folder_that_is_not_writable(fabric: Fabric) -> None:
    fabric.layout.dist.mkdir()
    fabric.layout.dist.chmod(0o500)
    with pytest.raises(RigError, match="Permission denied"):
        fabric.build(fabric.series(CHANGES))


def test_a_killed_build_leaves_no_wheel_and_the_next_one_cleans_up(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)

    def stall() -> None:
        setattr(build_module, "inspect_wheel", lambda *a, **k: time.sleep(60))  # noqa: B010
        fabric.build(applied)

    child = FORK.Process(target=stall)
    child.start()
    part = ".vllm-1.2.3+rig.1-py3-none-any.whl.part"
    deadline = time.monotonic() + 30
    while fabric.dist_files() != [part] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(10)
    assert fabric.dist_files() == [part]
    built = fabric.build(applied, revision=2)  # of another name, so that it cannot just overwrite
    assert fabric.dist_files() == [built.path.name]


def test_two_builds_at_once_do_not_hurt_each_other(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)
    children = [FORK.Process(target=fabric.build, args=(applied,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [c.exitcode for c in children] == [0, 0, 0]
    (name,) = fabric.dist_files()
    inspect_wheel(fabric.layout.dist / name, full=True)
