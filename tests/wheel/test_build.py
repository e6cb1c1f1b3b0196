"""Building a wheel from a fabricated release: what comes out."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from rig.errors import RigError
from rig.git import Git
from rig.pins import Arch, Flavour
from rig.wheel.archive import Archive
from rig.wheel.record import parse_record, row_of
from rig.wheel.tree import blob_id

from .wheel_fabric import CHANGES, LIBRARY, SOURCE, Fabric, members, read


def test_a_wheel_holds_the_release_and_the_series_and_nothing_else(fabric: Fabric) -> None:
    built = fabric.build(fabric.series(CHANGES))
    assert built.path == fabric.layout.dist / "vllm-1.2.3+rig.1-py3-none-any.whl"
    assert built.version == "1.2.3+rig.1"
    assert built.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    assert built.patched == tuple(sorted(p for p in CHANGES if p.startswith("vllm/")))
    assert built.outside == ("tests/test_b.py",)
    info = "vllm-1.2.3+rig.1.dist-info/"
    release = {p: d for p, d in SOURCE.items() if p.startswith("vllm/")}
    wanted: dict[str, bytes | None] = {**release, **CHANGES}
    for path in ("vllm/old.py", "tests/test_b.py", "vllm/_version.py"):
        del wanted[path]
    wanted |= {"vllm/_C.abi3.so": LIBRARY, f"{info}licenses/LICENSE": b"a licence\n"}
    found = members(built.path)
    rewritten = {f"{info}{n}" for n in ("METADATA", "WHEEL", "RECORD")}
    rewritten |= {"vllm/_version.py", "vllm/rig_provenance.json"}
    rest = {"vllm/vllm_flash_attn/rotary.py", f"{info}entry_points.txt"}
    assert found.keys() == wanted.keys() | rewritten | rest
    assert {p: read(built.path, p) for p in wanted} == wanted
    assert b"Tag: py3-none-any\n" in read(built.path, f"{info}WHEEL")
    assert list(found)[-1] == f"{info}RECORD"  # the wheel format wants dist-info last
    rows = parse_record(read(built.path, f"{info}RECORD"), f"{info}RECORD", "")
    assert rows == {p: row_of(read(built.path, p)) for p in found if p != f"{info}RECORD"}


def test_what_is_copied_is_not_packed_again(fabric: Fabric) -> None:
    release = fabric.layout.downloads / fabric.pin().wheels[Flavour.CUDA][Arch.X86_64].sha256
    release = release / fabric.wheel_name
    built = fabric.build(fabric.series(CHANGES))
    with Archive(release) as old, Archive(built.path) as new:
        for name in ("vllm/_C.abi3.so", "vllm/__init__.py", "vllm/n\u00e4me.txt"):
            (_, a, b, _), (_, c, d, _) = old.locate(old.find(name)), new.locate(new.find(name))
            assert release.read_bytes()[a:b] == built.path.read_bytes()[c:d]
    before, after = members(release), members(built.path)
    for name in ("vllm/__init__.py", "vllm/tool.sh"):
        assert after[name].date_time == before[name].date_time == (2026, 11, 1, 9, 25, 6)
        assert after[name].external_attr == before[name].external_attr
    new_member = after["vllm/platforms/cpu.py"]
    assert new_member.date_time == (1980, 1, 1, 0, 0, 0)
    assert stat.S_IMODE(new_member.external_attr >> 16) == 0o644


def test_permissions_follow_the_tree_only_where_the_series_changes_them(fabric: Fabric) -> None:
    (fabric.tree / "vllm/platforms/cpu.py").chmod(0o755)
    fabric.put("vllm/tool.sh", b"#!/bin/sh\necho\n")  # 755 in the tree, 644 in the wheel
    fabric.put("vllm/run.sh", b"#!/bin/sh\n")
    (fabric.tree / "vllm/run.sh").chmod(0o755)
    found = members(fabric.build(fabric.series({})).path)
    modes = {p: stat.S_IMODE(m.external_attr >> 16) for p, m in found.items()}
    assert modes["vllm/platforms/cpu.py"] == modes["vllm/run.sh"] == 0o755
    assert modes["vllm/tool.sh"] == modes["vllm/__init__.py"] == 0o644


@pytest.mark.parametrize("flavour", list(Flavour))
def test_pip_installs_it_and_python_runs_it(fabric: Fabric, flavour: Flavour) -> None:
    fabric.flavour = flavour
    built = fabric.build(fabric.series(CHANGES), revision=7)
    target = fabric.root / "site packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--no-index", "--target", str(target), str(built.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import importlib.metadata as m, vllm, vllm.platforms.cpu as c, vllm.rig.new\n"
        "d = next(m.distributions(name='vllm', path=[sys.argv[1]]))\n"
        "print(d.version, vllm.__version__, c.ray_device_key)"
    )
    run = [sys.executable, "-I", "-c", script, str(target)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    version = "1.2.3+rig.7" + (".cpu" if flavour is Flavour.CPU else "")
    assert said == [version, version, "GPU"]
    assert not (target / "vllm/old.py").exists()


def test_two_builds_in_two_places_give_the_same_bytes(
    new_fabric: Callable[[str], Fabric], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = new_fabric("one")
    first = one.build(one.series(CHANGES))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    old_umask = os.umask(0o077)
    try:
        other = new_fabric("a longer name, with spaces")
        second = other.build(other.series(CHANGES))
    finally:
        os.umask(old_umask)
        monkeypatch.undo()
        time.tzset()
    assert first.path.read_bytes() == second.path.read_bytes()
    third = other.build()
    assert third.sha256 == second.sha256


def test_the_work_tree_is_not_read(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)
    wanted = fabric.build(applied).sha256
    fabric.put("vllm/platforms/cpu.py", b"edited, not committed\n")
    fabric.put("vllm/stray.py", b"")
    (fabric.tree / "vllm/__init__.py").unlink()
    assert fabric.build(applied).sha256 == wanted


def test_a_commit_after_the_proof_is_not_read(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)
    wanted = fabric.build(applied).sha256
    fabric.series({"vllm/platforms/cpu.py": b"later\n"})
    assert fabric.build(applied).sha256 == wanted


def test_a_list_of_changes_that_is_not_the_trees_is_refused(fabric: Fabric) -> None:
    old = fabric.series(CHANGES)
    new = fabric.series({"vllm/empty.py": b"# more\n"})
    mixed = type(new)(**{**vars(new), "changed": old.changed})
    with pytest.raises(RigError, match="disagree") as caught:
        fabric.build(mixed)
    assert "vllm/empty.py" in str(caught.value)


def test_a_blob_with_other_bytes_than_its_id_is_refused(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = fabric.series(CHANGES)
    right = Git.blobs
    monkeypatch.setattr(
        Git, "blobs", lambda g, ids: {i: d + b" " for i, d in right(g, ids).items()}
    )
    with pytest.raises(RigError, match="other bytes than those of blob"):
        fabric.build(applied)


def test_the_digest_of_the_release_wheel_is_checked(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)
    artifact = applied.pin.wheels[Flavour.CUDA][Arch.X86_64]
    wheel = fabric.layout.downloads / artifact.sha256 / artifact.name
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    with pytest.raises(RigError):  # it is fetched again, and no index has this version
        fabric.build(applied)
    assert fabric.dist_files() == []


def test_blob_ids_are_gits(fabric: Fabric) -> None:
    assert fabric.git.line("rev-parse", "HEAD:vllm/old.py") == blob_id(SOURCE["vllm/old.py"])
