"""Raw copying of zip members, with `zipfile`, `unzip` and Python's zip tester as witnesses."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.wheel.archive import Archive
from rig.wheel.archive_writer import ArchiveWriter

from .wheel_fabric import Fabric


def write_zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6)), data, method)
    return path


def copy_all(source: Path, target: Path, rename: dict[str, str] | None = None) -> Path:
    with Archive(source) as archive, target.open("wb") as file:
        writer = ArchiveWriter(file)
        for member in archive.members:
            writer.copy(archive, member, (rename or {}).get(member.name, member.name))
        writer.finish()
    return target


def packed(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        member = archive.getinfo(name)
        file.seek(member.header_offset + 26)
        sizes = file.read(4)
        skip = int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little")
        file.seek(skip, 1)
        return file.read(member.compress_size)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_copy_of_every_member_is_the_same_archive(fabric: Fabric, streamed: bool) -> None:
    fabric.streamed = streamed
    source = fabric.root / "source.whl"
    source.write_bytes(fabric.wheel_bytes())
    copy = copy_all(source, fabric.root / "copy.whl")
    assert copy.read_bytes() == source.read_bytes()
    flags = {m.flag_bits & 8 for m in zipfile.ZipFile(copy).infolist()}
    assert flags == ({8} if streamed else {0})  # data descriptors were really there


@pytest.mark.parametrize("streamed", [False, True])
def test_a_renamed_member_keeps_its_packed_bytes_date_and_extra_field(
    fabric: Fabric, streamed: bool
) -> None:
    fabric.streamed = streamed
    source = fabric.root / "source.whl"
    source.write_bytes(fabric.wheel_bytes())
    rename = {"vllm/old.py": "vllm/a much longer name.py", "vllm/_C.abi3.so": "x"}
    copy = copy_all(source, fabric.root / "copy.whl", rename)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(copy) as new:
        assert new.testzip() is None
        for before, after in rename.items():
            assert packed(copy, after) == packed(source, before)
            was, is_now = old.getinfo(before), new.getinfo(after)
            assert (was.date_time, was.external_attr, was.extra, was.compress_type) == (
                is_now.date_time,
                is_now.external_attr,
                is_now.extra,
                is_now.compress_type,
            )
        assert new.getinfo(rename["vllm/old.py"]).extra == b"\xfe\xca\x02\x00ab"


def test_other_programs_find_a_mixed_archive_whole(fabric: Fabric) -> None:
    source = fabric.root / "source.whl"
    source.write_bytes(fabric.wheel_bytes())
    target = fabric.root / "mixed.whl"
    with Archive(source) as archive, target.open("wb") as file:
        writer = ArchiveWriter(file)
        writer.add("first.txt", b"1" * 70_000, 0o100755)
        for member in archive.members:
            writer.copy(archive, member, member.name)
        writer.add("n\u00e4me.txt", b"", 0o100644)
        writer.finish()
    tests = [[sys.executable, "-m", "zipfile", "-t", str(target)]]
    if shutil.which("unzip"):
        tests.append(["unzip", "-tq", str(target)])
    for command in tests:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(target) as mixed:
        first = mixed.getinfo("first.txt")
        assert (first.external_attr >> 16, first.date_time) == (0o100755, (1980, 1, 1, 0, 0, 0))
        assert mixed.read("n\u00e4me.txt") == b""


def test_members_are_read_and_checked(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = write_zip(tmp_path / f"{method}.zip", {"a": b"text" * 999, "b": b""}, method)
        with Archive(path) as archive:
            assert [archive.read(m) for m in archive.members] == [b"text" * 999, b""]


def test_a_flipped_bit_in_a_member_is_found(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": bytes(range(256)) * 9}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with Archive(path) as archive, pytest.raises(RigError, match="a does not match its checksum"):
        archive.read(archive.find("a"))


def test_a_cut_off_archive_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "a.zip", {"a": b"1" * 50, "b/c": b"2" * 50}).read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut.zip").write_bytes(whole[:size])
        with pytest.raises(RigError, match="cannot be used"):
            copy_all(tmp_path / "cut.zip", tmp_path / "copy.zip")


def test_bytes_missing_in_the_middle_are_refused(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "a.zip", {"a": b"1" * 50, "b/c": b"2" * 50}).read_bytes()
    for at in range(len(whole) - 1):
        (tmp_path / "cut.zip").write_bytes(whole[:at] + whole[at + 1 :])
        with pytest.raises(RigError), Archive(tmp_path / "cut.zip") as archive:
            for member in archive.members:
                archive.read(member)


def zip64_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive, archive.open("a", "w", force_zip64=True) as file:
        file.write(b"x")


def too_many_members(path: Path) -> None:
    data = bytearray(write_zip(path, {"a": b"x"}).read_bytes())
    data[-14:-10] = b"\xff\xff\xff\xff"
    path.write_bytes(data)


def encrypted(path: Path) -> None:
    data = bytearray(write_zip(path, {"a": b"x"}).read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[6] |= 1
    data[at + 8] |= 1
    path.write_bytes(data)


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")


def other_local_name(path: Path) -> None:
    data = bytearray(write_zip(path, {"abc": b"x"}).read_bytes())
    data[30:33] = b"abd"
    path.write_bytes(data)


def text_before(path: Path) -> None:
    path.write_bytes(b"#!/bin/sh\n" + write_zip(path, {"a": b"x"}).read_bytes())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (zip64_member, "Zip64"),
        (too_many_members, "Zip64"),
        (encrypted, "encrypted"),
        (twice, "twice"),
        (other_local_name, "does not lie where"),
        (text_before, "does not lie where"),
        (lambda p: p.write_bytes(b""), "empty"),
        (lambda p: p.write_bytes(b"no zip at all" * 9), "cut short"),
        (lambda p: write_zip(p, {"../a": b""}), "leaves the folder"),
        (lambda p: write_zip(p, {"/a": b""}), "leaves the folder"),
        (lambda p: write_zip(p, {"a\\b": b""}), "leaves the folder"),
        (lambda p: write_zip(p, {"a\nb": b""}), "leaves the folder"),
    ],
)
def test_archives_that_are_not_copied(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    make(tmp_path / "a.zip")
    with pytest.raises(RigError, match=says) as caught:
        copy_all(tmp_path / "a.zip", tmp_path / "copy.zip")
    assert str(tmp_path / "a.zip") in str(caught.value)


def test_a_missing_file_and_a_missing_member_are_named(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="No such file"):
        Archive(tmp_path / "none.zip")
    path = write_zip(tmp_path / "a.zip", {"a": b"x"})
    with Archive(path) as archive, pytest.raises(RigError, match="no member b"):
        archive.find("b")


def test_the_writer_gives_the_same_bytes_twice() -> None:
    def write() -> bytes:
        buffer = io.BytesIO()
        writer = ArchiveWriter(buffer)
        writer.add("a", b"x" * 10, 0o100644)
        writer.finish()
        return buffer.getvalue()

    assert write() == write()
