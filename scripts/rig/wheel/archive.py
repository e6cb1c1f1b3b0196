"""Zip archives, as far as a repack needs them: members travel as compressed bytes.

`zipfile` can only copy a member by unpacking and compressing it again, which takes minutes for an
engine and changes its bytes. Here a member's local record is copied as it lies. `zipfile` stays
the witness: rig.wheel.inspect reads with it what this module wrote.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rig.errors import RigError, first_line_of_os_error

# The fixed parts of the three records, as the zip format's specification (APPNOTE) lays them out.
LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"
_ZIP64_LOCATOR_MAGIC = b"PK\x06\x07"
_DESCRIPTOR_MAGIC = b"PK\x07\x08"
_ZIP64_LOCATOR_SIZE = 20

STORED, _DEFLATED = 0, 8
_FLAG_ENCRYPTED, _FLAG_DESCRIPTOR, FLAG_UTF8 = 0x0001, 0x0008, 0x0800
LIMIT = 0xFFFFFFFF  # a size or offset of this value means "see the Zip64 record"
MAX_MEMBERS = 0xFFFF
_MAX_COMMENT = 0xFFFF
_ZIP64 = "is in the Zip64 format, which this tool does not copy"


@dataclass(frozen=True)
class Member:
    """One member, as the central directory tells it.

    Args:
        name: its path, `/` between the parts; a folder ends in `/`.
        size: bytes when unpacked.
        packed_size: bytes in the archive.
        mode: Unix file type and permissions, 0 when the archive gives none.
        record: its whole central directory record.
    """

    name: str
    method: int
    flags: int
    crc: int
    size: int
    packed_size: int
    mode: int
    offset: int
    record: bytes

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")


class Archive:
    """A zip file, read through a memory map.

    Raises:
        RigError: it cannot be read, is cut short, uses Zip64 or encryption, or a name in it is
            unsafe or occurs twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise RigError(
                f"cannot read the archive: {first_line_of_os_error(error)}", where=path
            ) from error
        except ValueError as error:  # an empty file cannot be mapped
            raise self._broken("it is empty") from error
        try:
            self.members = tuple(self._read_directory())
        except BaseException:
            self._map.close()
            raise
        self._by_name = {m.name: m for m in self.members}

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._map.close()

    def find(self, name: str) -> Member:
        """One member by name."""
        try:
            return self._by_name[name]
        except KeyError:
            raise RigError(f"the wheel has no member {name}", where=self.path) from None

    def read(self, member: Member) -> bytes:
        """A member's unpacked bytes, checked against its size and checksum."""
        _, start, end, _ = self.locate(member)
        packed = self._map[start:end]
        if member.method == STORED:
            data = packed
        elif member.method == _DEFLATED:
            try:
                data = zlib.decompress(packed, wbits=-15, bufsize=max(member.size, 1))
            except zlib.error as error:
                raise self._broken(f"{member.name} cannot be unpacked ({error})") from error
        else:
            raise self._broken(f"{member.name} is packed by method {member.method}")
        if len(data) != member.size or zlib.crc32(data) != member.crc:
            raise self._broken(f"{member.name} does not match its checksum")
        return data

    def locate(self, member: Member) -> tuple[bytes, int, int, int]:
        """A member's fixed local header, and where its packed bytes start and end.

        The last number is where its record ends: behind the data descriptor, when there is one.
        """
        start = member.offset + LOCAL.size
        header = self._map[member.offset : start]
        if len(header) != LOCAL.size:
            raise self._broken(f"{member.name} is cut off")
        magic, _, flags, method, _, _, crc, packed, size, name_size, extra_size = LOCAL.unpack(
            header
        )
        name = self._map[start : start + name_size]
        if magic != LOCAL_MAGIC or name != name_in(member.record):
            raise self._broken(f"{member.name} does not lie where the directory says")
        streamed = bool(flags & _FLAG_DESCRIPTOR)
        if LIMIT in (packed, size):
            raise self._broken(f"{member.name} {_ZIP64}")
        sizes_agree = (crc, packed, size) == (member.crc, member.packed_size, member.size)
        # A streamed member's sizes follow its data; then all three are 0 here.
        if (flags, method) != (member.flags, member.method) or not (sizes_agree or streamed):
            raise self._broken(f"the two headers of {member.name} contradict each other")
        start += name_size + extra_size
        end = start + member.packed_size
        record_end = end + (self._descriptor_size(member, end) if streamed else 0)
        if record_end > self._directory_start:
            raise self._broken(f"{member.name} is cut off")
        return header, start, end, record_end

    def view(self, start: int, end: int) -> memoryview:
        """Bytes of the archive itself, not copied: release the view before closing."""
        return memoryview(self._map)[start:end]

    def _descriptor_size(self, member: Member, at: int) -> int:
        body = struct.pack("<3L", member.crc, member.packed_size, member.size)
        for descriptor in (_DESCRIPTOR_MAGIC + body, body):  # the magic number is optional
            if self._map[at : at + len(descriptor)] == descriptor:
                return len(descriptor)
        raise self._broken(f"{member.name} has no sizes behind its data")

    def _read_directory(self) -> Iterator[Member]:
        tail = max(0, len(self._map) - END.size - _MAX_COMMENT)
        end = self._map.rfind(END_MAGIC, tail)
        if end < 0 or end + END.size > len(self._map):
            raise self._broken("it has no end record, so it was cut short")
        _, disk, start_disk, here, count, size, start, comment = END.unpack_from(self._map, end)
        locator = end - _ZIP64_LOCATOR_SIZE
        if (
            LIMIT in (size, start)
            or count == MAX_MEMBERS
            or (locator >= 0 and self._map[locator : locator + 4] == _ZIP64_LOCATOR_MAGIC)
        ):
            raise self._broken(f"it {_ZIP64}")
        if disk or start_disk or here != count or end + END.size + comment != len(self._map):
            raise self._broken("its end record is wrong")
        if start + size != end:
            raise self._broken("its directory does not lie where the end record says")
        self._directory_start = start
        at, seen = start, set[str]()
        for _ in range(count):
            member, at = self._read_record(at, end)
            if member.name in seen:
                raise self._broken(f"it holds {member.name} twice")
            seen.add(member.name)
            yield member
        if at != end:
            raise self._broken("its directory has another length than its records")

    def _read_record(self, at: int, limit: int) -> tuple[Member, int]:
        if at + CENTRAL.size > limit:
            raise self._broken("its directory is cut off")
        fields = CENTRAL.unpack_from(self._map, at)
        magic, _, _, flags, method, _, _, crc, packed, size, n, extra, comment = fields[:13]
        disk, _, attributes, offset = fields[13:]
        stop = at + CENTRAL.size + n + extra + comment
        if magic != CENTRAL_MAGIC or stop > limit or disk:
            raise self._broken("its directory is damaged")
        record = self._map[at:stop]
        name = self._decode_name(name_in(record), flags)
        if flags & _FLAG_ENCRYPTED:
            raise self._broken(f"{name} is encrypted")
        if LIMIT in (packed, size, offset):
            raise self._broken(f"{name} {_ZIP64}")
        mode = attributes >> 16
        return Member(name, method, flags, crc, size, packed, mode, offset, record), stop

    def _decode_name(self, raw: bytes, flags: int) -> str:
        try:
            name = raw.decode("utf-8" if flags & FLAG_UTF8 else "ascii")
        except UnicodeDecodeError as error:
            raise self._broken(f"the name {raw!r} in it is not marked as UTF-8") from error
        parts = name.removesuffix("/").split("/")
        if any(p in ("", ".", "..") for p in parts) or "\\" in name or not name.isprintable():
            raise self._broken(
                f"the name {name!r} in it leaves the folder, or is none on every system"
            )
        return name

    def _broken(self, why: str) -> RigError:
        return RigError(
            f"the wheel cannot be used: {why}",
            where=self.path,
            next_step="if it is a download, delete it and run the same command again",
        )


def name_in(record: bytes) -> bytes:
    size = int.from_bytes(record[28:30], "little")
    return record[CENTRAL.size : CENTRAL.size + size]
