"""Writing zip archives: members copied as they lie, new members stored.

Two builds of zlib compress the same bytes differently. So that the same calls give the same
archive on any machine, new members are not compressed: next to an engine's libraries a few source
files weigh nothing.
"""

from __future__ import annotations

import zlib
from typing import IO

from rig.errors import RigError
from rig.wheel.archive import (
    CENTRAL,
    CENTRAL_MAGIC,
    END,
    END_MAGIC,
    FLAG_UTF8,
    LIMIT,
    LOCAL,
    LOCAL_MAGIC,
    MAX_MEMBERS,
    STORED,
    Archive,
    Member,
    name_in,
)

# What we write: made on Unix, version 2.0, dated 1980-01-01 00:00, the earliest a zip can say.
_MADE_BY_UNIX = (3 << 8) | 20
_NEEDED = 20
_TIME, _DATE = 0, (1 << 5) | 1


class ArchiveWriter:
    """Writes a zip file member by member."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = 0
        self._directory: list[bytes] = []

    def copy(self, source: Archive, member: Member, name: str) -> None:
        """Copy a member as it lies: packed bytes, date, permissions; only the name may differ."""
        header, _, _, record_end = source.locate(member)
        old = name_in(member.record)
        new = name.encode("utf-8" if member.flags & FLAG_UTF8 else "ascii")
        extra_at = member.offset + LOCAL.size + len(old)
        central = bytearray(_rename(member.record, CENTRAL.size, 28, old, new))
        central[42:46] = self._offset().to_bytes(4, "little")
        self._directory.append(bytes(central))
        self._write(_rename(header, LOCAL.size, 26, b"", new))
        with source.view(extra_at, record_end) as packed:
            self._write(packed)

    def add(self, name: str, data: bytes, mode: int) -> None:
        """Add a new member; mode is the Unix file type and permissions."""
        raw = name.encode()
        flags = 0 if name.isascii() else FLAG_UTF8
        if len(data) >= LIMIT:
            raise RigError("the member is larger than a plain zip file can hold", where=name)
        shared = (flags, STORED, _TIME, _DATE, zlib.crc32(data), len(data), len(data), len(raw), 0)
        fixed = CENTRAL.pack(
            CENTRAL_MAGIC, _MADE_BY_UNIX, _NEEDED, *shared, 0, 0, 0, mode << 16, self._offset()
        )
        self._directory.append(fixed + raw)
        self._write(LOCAL.pack(LOCAL_MAGIC, _NEEDED, *shared) + raw)
        self._write(data)

    def finish(self) -> None:
        """Write the directory."""
        start, count = self._offset(), len(self._directory)
        if count >= MAX_MEMBERS:
            raise RigError(f"{count} members are more than a plain zip file can hold")
        for record in self._directory:
            self._write(record)
        size = self._at - start
        self._write(END.pack(END_MAGIC, 0, 0, count, count, size, start, 0))

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._at += len(data)

    def _offset(self) -> int:
        if self._at >= LIMIT:
            raise RigError("the wheel is larger than a plain zip file can be (4 GiB)")
        return self._at


def _rename(record: bytes, fixed: int, size_at: int, old: bytes, new: bytes) -> bytes:
    head = record[:size_at] + len(new).to_bytes(2, "little") + record[size_at + 2 : fixed]
    return head + new + record[fixed + len(old) :]
