"""Inspecting finished wheels: what is found, and what a quick look cannot find."""

from __future__ import annotations

import json
import shutil
import warnings
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rig.cli import app
from rig.errors import RigError
from rig.pins import Flavour
from rig.wheel.inspect import describe, inspect_wheel

from .wheel_fabric import Fabric, rewritten_wheel

INFO = "vllm-1.2.3+rig.1.dist-info/"
NAME = "vllm-1.2.3+rig.1-py3-none-any.whl"


@pytest.fixture
def wheel(fabric: Fabric) -> Path:
    return fabric.build(
        fabric.series({"vllm/platforms/cpu.py": b"x = 1\n", "vllm/old.py": None})
    ).path


def test_describe_tells_what_a_wheel_carries(wheel: Path) -> None:
    provenance = describe(wheel)
    assert provenance.version == "1.2.3+rig.1"
    assert [(p.number, p.subject) for p in provenance.patches] == [("0101", "[Platform] x")]
    assert set(provenance.files) == {"vllm/platforms/cpu.py", "vllm/_version.py"}
    assert provenance.removed == ("vllm/old.py",)


def test_describe_of_something_else(fabric: Fabric, tmp_path: Path) -> None:
    plain = tmp_path / fabric.wheel_name
    plain.write_bytes(fabric.wheel_bytes())
    with pytest.raises(RigError, match="not a rig build"):
        describe(plain)
    plain.write_bytes(b"text")
    with pytest.raises(RigError, match="damaged"):
        describe(plain)
    with pytest.raises(RigError, match="No such file"):
        describe(tmp_path / "none.whl")


def test_a_good_wheel_passes_both_ways(wheel: Path) -> None:
    quick, full = inspect_wheel(wheel), inspect_wheel(wheel, full=True)
    assert full.hashed == full.members - 1 > quick.hashed  # all but RECORD
    assert quick.provenance == describe(wheel)


def test_several_are_told_apart(wheel: Path, tmp_path: Path) -> None:
    """`dist/*.whl` may be the wheels of two processors."""
    other = tmp_path / "other" / wheel.name
    other.parent.mkdir()
    shutil.copy(wheel, other)
    done = CliRunner().invoke(app, ["inspect", str(wheel), str(other)])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{wheel}:", f"{other}:"]
    assert lines.count("patch    0101 [Platform] x") == 2
    other.write_bytes(b"text")
    assert CliRunner().invoke(app, ["inspect", str(wheel), str(other)]).exit_code == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (f"{INFO}METADATA", b"Name: vllm\n", b"Name: mllv\n", "METADATA"),
        (f"{INFO}METADATA", b"+rig.1\n", b"+rig.2\n", "METADATA"),
        (f"{INFO}WHEEL", b"py3-none-any", b"py2-none-any", "tags"),
        ("vllm/platforms/cpu.py", b"x = 1", b"x = 2", "digest"),
        ("vllm/_version.py", b"rig.1", b"rig.2", "digest"),
        ("vllm/rig_provenance.json", b'"0101"', b'"0102"', "sealed"),
        (f"{INFO}RECORD", b"vllm/empty.py,", b"vllm/other.py,", "lists"),
        (f"{INFO}METADATA", b"regex", b"reg-x", "digest"),
    ],
)
def test_what_a_quick_look_finds(
    wheel: Path, tmp_path: Path, name: str, old: bytes, new: bytes, says: str
) -> None:
    data = zipfile.ZipFile(wheel).read(name)
    assert old in data
    changed = rewritten_wheel(wheel, {name: data.replace(old, new)}, tmp_path / NAME)
    with pytest.raises(RigError, match=says):
        inspect_wheel(changed)


@pytest.mark.parametrize(
    "edits",
    [{"vllm/empty.py": None}, {"vllm/extra.py": b""}, {"vllm/__init__.py": b"longer" * 99}],
)
def test_members_and_record_must_agree(
    wheel: Path, tmp_path: Path, edits: dict[str, bytes | None]
) -> None:
    changed = rewritten_wheel(wheel, edits, tmp_path / NAME)
    with pytest.raises(RigError):
        inspect_wheel(changed)


def test_only_the_full_look_finds_other_bytes_of_the_same_size(wheel: Path, tmp_path: Path) -> None:
    changed = rewritten_wheel(wheel, {"vllm/tool.sh": b"#!/bin/sx\n"}, tmp_path / NAME)
    inspect_wheel(changed)
    with pytest.raises(RigError, match=r"vllm/tool\.sh has not the digest"):
        inspect_wheel(changed, full=True)


def test_flipped_bits_anywhere_in_the_packed_bytes_are_found(wheel: Path, tmp_path: Path) -> None:
    whole = wheel.read_bytes()
    broken = tmp_path / NAME
    at = whole.index(b"vllm/_C.abi3.so") + 1000
    broken.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    with pytest.raises(RigError):
        inspect_wheel(broken, full=True)


@pytest.mark.parametrize("cut", [1, 100, 5000, 250_000])
def test_a_wheel_cut_short(wheel: Path, tmp_path: Path, cut: int) -> None:
    short = tmp_path / NAME
    short.write_bytes(wheel.read_bytes()[:-cut])
    with pytest.raises(RigError, match="damaged"):
        inspect_wheel(short)


def test_a_wheel_under_another_name(wheel: Path, tmp_path: Path) -> None:
    for name in ("vllm-1.2.3+rig.2-py3-none-any.whl", "vllm-1.2.3+rig.1-py2-none-any.whl"):
        other = tmp_path / name
        other.write_bytes(wheel.read_bytes())
        with pytest.raises(RigError):
            inspect_wheel(other)


def test_a_cpu_build_that_asks_for_what_cannot_be_installed(fabric: Fabric, tmp_path: Path) -> None:
    fabric.flavour = Flavour.CPU
    wheel = fabric.build(fabric.series({"vllm/empty.py": b"#\n"})).path
    info = "vllm-1.2.3+rig.1.cpu.dist-info/METADATA"
    good = zipfile.ZipFile(wheel).read(info)
    for line in (b"Requires-Dist: torchaudio\n", b"Requires-Dist: torch==2.13.0+cpu\n"):
        edits = {info: good.replace(b"Requires-Dist: regex\n", line)}
        changed = rewritten_wheel(wheel, edits, tmp_path / wheel.name, new_record=True)
        with pytest.raises(RigError, match="must not ask for torch"):
            inspect_wheel(changed)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("vllm/platforms/cpu.py", b"x = 2\n", "not the file that the provenance names"),
        ("vllm/platforms/cpu.py", None, "not the file that the provenance names"),
        ("vllm/old.py", b"OLD = True\n", "still holds vllm/old.py"),
        ("vllm/rig_provenance.json", None, "not a rig build"),
        (f"{INFO}WHEEL", b"Wheel-Version: 1.0\n\n", "tags"),
        (f"{INFO}METADATA", None, "has no"),
    ],
)
def test_a_record_that_agrees_does_not_excuse_wrong_members(
    wheel: Path, tmp_path: Path, name: str, data: bytes | None, says: str
) -> None:
    changed = rewritten_wheel(wheel, {name: data}, tmp_path / NAME, new_record=True)
    with pytest.raises(RigError, match=says):
        inspect_wheel(changed)


def test_folder_entries_and_doubled_members(wheel: Path, tmp_path: Path) -> None:
    for name in ("vllm/", "vllm/empty.py"):
        changed = tmp_path / NAME
        changed.write_bytes(wheel.read_bytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with zipfile.ZipFile(changed, "a") as archive:
                archive.writestr(name, b"")
        with pytest.raises(RigError, match="twice, or entries for folders"):
            inspect_wheel(changed)


def test_the_provenance_in_the_wheel_is_plain_json(wheel: Path) -> None:
    content = json.loads(zipfile.ZipFile(wheel).read("vllm/rig_provenance.json"))
    assert content["schema"] == 1
    assert len(content["seal"]) == 64
