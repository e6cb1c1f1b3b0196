"""RECORD: the list of a wheel's files with their digests and sizes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rig.errors import RigError

_DIGEST = re.compile(r"sha256=[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Row:
    """One file of RECORD.

    Args:
        digest: `sha256=` and the URL-safe base64 digest without padding.
        size: bytes.
    """

    digest: str
    size: int


def row_of(data: bytes) -> Row:
    """The row of a file with these bytes."""
    raw = hashlib.sha256(data).digest()
    encoded = base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
    return Row(f"sha256={encoded}", len(data))


def hex_digest(row: Row) -> str:
    """A row's digest in hexadecimal."""
    return base64.urlsafe_b64decode(row.digest.removeprefix("sha256=") + "=").hex()


def parse_record(data: bytes, own_name: str, where: object) -> dict[str, Row]:
    """The rows of a RECORD, without its own.

    Args:
        own_name: the path of RECORD in the wheel; its own row must be there and empty.

    Raises:
        RigError: a row is malformed or comes twice, or RECORD's own row is missing.
    """
    rows: dict[str, Row] = {}
    own_rows = 0
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RigError(f"RECORD cannot be read: {error}", where=where) from error
    for number, fields in enumerate(lines, start=1):
        if len(fields) != 3:
            raise RigError(f"RECORD line {number} has {len(fields)} fields, not 3", where=where)
        name, digest, size = fields
        if name == own_name:
            if digest or size or own_rows:
                raise RigError("RECORD lists itself with a digest, or twice", where=where)
            own_rows += 1
        elif not _DIGEST.fullmatch(digest) or not re.fullmatch("[0-9]+", size):
            raise RigError(f"RECORD has no sha256 digest and size for {name}", where=where)
        elif name in rows:
            raise RigError(f"RECORD lists {name} twice", where=where)
        else:
            rows[name] = Row(digest, int(size))
    if not own_rows:
        raise RigError("RECORD does not list itself", where=where)
    return rows


def format_record(rows: Mapping[str, Row], own_name: str) -> bytes:
    """A RECORD's bytes, rows in the given order, its own row last."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for name, row in rows.items():
        writer.writerow((name, row.digest, row.size))
    writer.writerow((own_name, "", ""))
    return text.getvalue().encode()


def check_names(listed: Iterable[str], present: Iterable[str], where: object) -> None:
    """Refuse a RECORD that does not list exactly the files that are there.

    Raises:
        RigError: names the files.
    """
    listed, present = set(listed), set(present)
    if listed == present:
        return
    detail = [f"listed in RECORD, not in the wheel: {n}" for n in sorted(listed - present)]
    detail += [f"in the wheel, not listed in RECORD: {n}" for n in sorted(present - listed)]
    raise RigError(
        "the wheel's files are not the ones that its RECORD lists",
        where=where,
        detail="\n".join(detail),
        next_step="the wheel is incomplete: do not use it",
    )
