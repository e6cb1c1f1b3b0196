"""Looking at a finished wheel, with `zipfile` as the reader: what is in it, and is it whole.

Nothing here is shared with the code that writes wheels but the readers of RECORD, METADATA and
the provenance file.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from rig.errors import RigError, first_line_of_os_error
from rig.pins import Flavour
from rig.wheel.metadata import NOT_ASKED_OF_CPU, header_values
from rig.wheel.naming import DISTRIBUTION, WheelName, parse_wheel_name
from rig.wheel.provenance import PROVENANCE_PATH, Provenance, parse_provenance
from rig.wheel.record import Row, check_names, hex_digest, parse_record

_DAMAGED = "delete the wheel and build it again with `make build`"


@dataclass(frozen=True)
class WheelReport:
    """What a wheel was found to be.

    Args:
        members: how many files it holds.
        hashed: how many of them were unpacked and compared with RECORD.
    """

    name: WheelName
    members: int
    hashed: int
    provenance: Provenance


@contextmanager
def open_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """A wheel opened by `zipfile`.

    Raises:
        RigError: it cannot be read, or is found damaged while it is read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise RigError(
            f"cannot read the wheel: {first_line_of_os_error(error)}",
            where=path,
            next_step="name a wheel that is there; `make build` writes them into dist/",
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise RigError(f"the wheel is damaged: {error}", where=path, next_step=_DAMAGED) from error


def describe(path: Path) -> Provenance:
    """What a wheel carries.

    Raises:
        RigError: it is no wheel, or no rig build.
    """
    with open_wheel(path) as archive:
        try:
            data = archive.read(PROVENANCE_PATH)
        except KeyError:
            raise RigError(
                "this is not a rig build: it says nothing about patches",
                where=path,
                next_step="`make build` writes a rig build into dist/",
            ) from None
    return parse_provenance(data, path)


def inspect_wheel(path: Path, *, name: str | None = None, full: bool = False) -> WheelReport:
    """Prove that a wheel is whole and agrees with itself.

    Its name, METADATA, WHEEL, RECORD and provenance must say the same; each file that the
    provenance names must have its digest. Members that the release's wheel already had are only
    compared by name and size, unless `full` is set: then every member is unpacked and hashed.

    Args:
        name: the file name to judge it by, when it does not lie under it yet.

    Raises:
        RigError: says what is wrong.
    """
    shown = name or path.name
    wheel = parse_wheel_name(shown)
    info = f"{wheel.dist_info}/"
    with open_wheel(path) as archive:
        members = {m.filename: m for m in archive.infolist() if not m.is_dir()}
        if len(members) != len(archive.infolist()):
            raise _wrong("it holds a file twice, or entries for folders", shown)
        for needed in ("METADATA", "WHEEL", "RECORD"):
            if info + needed not in members:
                raise _wrong(f"it has no {info}{needed}", shown)
        rows = parse_record(archive.read(f"{info}RECORD"), f"{info}RECORD", shown)
        check_names([*rows, f"{info}RECORD"], members, shown)
        for path_in, row in rows.items():
            if row.size != members[path_in].file_size:
                raise _wrong(f"RECORD and the wheel give {path_in} different sizes", shown)
        provenance = parse_provenance(_read(archive, PROVENANCE_PATH, shown), shown)
        _check_texts(archive, wheel, provenance, shown)
        _check_provenance(provenance, rows, wheel, shown)
        own = {PROVENANCE_PATH, f"{info}METADATA", f"{info}WHEEL", *provenance.files}
        hashed = sorted(rows) if full else sorted(own)
        for path_in in hashed:
            if not _matches(archive, path_in, rows[path_in]):
                raise _wrong(f"{path_in} has not the digest that RECORD gives it", shown)
    return WheelReport(wheel, len(members), len(hashed), provenance)


def _check_texts(
    archive: zipfile.ZipFile, wheel: WheelName, provenance: Provenance, shown: str
) -> None:
    metadata = archive.read(f"{wheel.dist_info}/METADATA")
    for field, wanted in (("Name", DISTRIBUTION), ("Version", wheel.version)):
        found = header_values(metadata, field)
        if found != [wanted]:
            raise _wrong(f"METADATA gives the {field} {found}, its name {wanted}", shown)
    if wheel.distribution != DISTRIBUTION:
        raise _wrong(f"its name is not that of the distribution {DISTRIBUTION}", shown)
    tags = header_values(archive.read(f"{wheel.dist_info}/WHEEL"), "Tag")
    if sorted(tags) != sorted(wheel.tags):
        raise _wrong(f"WHEEL gives the tags {tags}, its name {list(wheel.tags)}", shown)
    if provenance.flavour is Flavour.CPU:
        for requirement in map(Requirement, header_values(metadata, "Requires-Dist")):
            asks = str(requirement.specifier)
            if requirement.name in NOT_ASKED_OF_CPU or (
                requirement.name == "torch" and "+" in asks
            ):
                raise _wrong(f"a CPU build must not ask for {requirement}", shown)


def _check_provenance(
    provenance: Provenance, rows: dict[str, Row], wheel: WheelName, shown: str
) -> None:
    if provenance.version != wheel.version:
        raise _wrong(f"its provenance is that of {provenance.version}", shown)
    for path, digest in provenance.files.items():
        if path not in rows or hex_digest(rows[path]) != digest:
            raise _wrong(f"{path} is not the file that the provenance names", shown)
    kept = sorted(set(provenance.removed) & rows.keys())
    if kept:
        raise _wrong(f"it still holds {', '.join(kept)}", shown)


def _matches(archive: zipfile.ZipFile, name: str, row: Row) -> bool:
    digest, size = hashlib.sha256(), 0
    with archive.open(name) as member:
        while chunk := member.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return (digest.hexdigest(), size) == (hex_digest(row), row.size)


def _read(archive: zipfile.ZipFile, name: str, shown: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise _wrong(f"it has no {name}: it is not a rig build", shown) from None


def _wrong(what: str, shown: str) -> RigError:
    return RigError(f"the wheel is not right: {what}", where=shown, next_step=_DAMAGED)
