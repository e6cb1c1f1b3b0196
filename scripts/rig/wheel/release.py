"""Reading a wheel that a build starts from, and proving it against the source it was made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from rig.errors import RigError
from rig.wheel.archive import Archive, Member
from rig.wheel.naming import WheelName
from rig.wheel.record import Row, check_names, parse_record
from rig.wheel.scope import VERSION_PATH
from rig.wheel.tree import TreeFile, blob_id


@dataclass(frozen=True)
class BaseWheel:
    """A wheel as read: a release's, or one just compiled.

    Args:
        members: in the archive's order, without entries for folders (RECORD cannot list them
            and installers do not need them).
        record: path -> digest and size, RECORD's own row left out.
        blobs: path -> git blob id of each member that the source tree has too.
    """

    name: WheelName
    members: tuple[Member, ...]
    metadata: bytes
    wheel: bytes
    record: dict[str, Row]
    blobs: dict[str, str]

    @property
    def names(self) -> set[str]:
        return {m.name for m in self.members}


def read_base(archive: Archive, name: WheelName, source_paths: Collection[str]) -> BaseWheel:
    """Read a wheel's directory and texts, and hash each member that the source has too.

    Raises:
        RigError: the wheel is damaged, incomplete, or of a form that this tool cannot rename.
    """
    members = tuple(m for m in archive.members if not m.is_folder)
    meta_folders = {
        top
        for m in members
        if (top := PurePosixPath(m.name).parts[0]).endswith((".dist-info", ".data"))
    }
    if meta_folders != {name.dist_info}:
        raise RigError(
            f"the wheel must hold one folder {name.dist_info} and no .data folder, "
            f"it holds: {', '.join(sorted(meta_folders)) or 'none'}",
            where=archive.path,
        )
    record_path = f"{name.dist_info}/RECORD"
    record = parse_record(archive.read(archive.find(record_path)), record_path, archive.path)
    check_names([*record, record_path], [m.name for m in members], archive.path)
    for member in members:
        if member.name != record_path and record[member.name].size != member.size:
            raise RigError(
                f"RECORD gives {member.name} {record[member.name].size} bytes, "
                f"the wheel {member.size}",
                where=archive.path,
            )
    return BaseWheel(
        name=name,
        members=members,
        metadata=archive.read(archive.find(f"{name.dist_info}/METADATA")),
        wheel=archive.read(archive.find(f"{name.dist_info}/WHEEL")),
        record=record,
        blobs={m.name: blob_id(archive.read(m)) for m in members if m.name in source_paths},
    )


def check_against_source(
    base: BaseWheel,
    source: Mapping[str, TreeFile],
    known_differences: Iterable[str],
    where: object,
) -> None:
    """Every file of the source's package must be in the wheel, byte for byte.

    Args:
        source: the package's files in the tree that the wheel was made of.
        known_differences: files that must differ; `vllm/_version.py` may, since builds write it.

    Raises:
        RigError: names each file that is missing, differs and is not known to, or is known to
            differ and does not.
    """
    known = set(known_differences)
    missing = source.keys() - base.names
    differing = {p for p, blob in base.blobs.items() if blob != source[p].blob}
    unknown = differing - known - {VERSION_PATH}
    detail = [f"missing from the wheel: {p}" for p in sorted(missing)]
    detail += [f"not the source's bytes: {p}" for p in sorted(unknown)]
    detail += [f"known to differ, but equal: {p}" for p in sorted(known - differing - missing)]
    if detail:
        raise RigError(
            "the wheel's package is not the one of the pinned source",
            where=where,
            detail="\n".join(detail),
            next_step="compare both; what a CPU wheel changes on purpose belongs in the pin, "
            "under [cpu] known_differences",
        )
