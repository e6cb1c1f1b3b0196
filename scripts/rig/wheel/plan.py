"""What goes into a wheel, decided before a byte is written. Nothing here touches a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rig.errors import RigError
from rig.pins import Flavour
from rig.series.applied import AppliedTree, ChangedFile
from rig.wheel.archive import Member
from rig.wheel.metadata import (
    header_values,
    require_python,
    rewrite_metadata,
    rewrite_version_file,
    rewrite_wheel,
)
from rig.wheel.naming import DISTRIBUTION, WheelName
from rig.wheel.provenance import PROVENANCE_PATH, Provenance, format_provenance, provenance_of
from rig.wheel.record import Row, format_record, row_of
from rig.wheel.release import BaseWheel, check_against_source
from rig.wheel.scope import VERSION_PATH, Scope
from rig.wheel.tree import Sources

_PLAIN_FILE = 0o100644


@dataclass(frozen=True)
class Copied:
    """A member taken over as compressed bytes, under a name that may be new."""

    name: str
    source: Member


@dataclass(frozen=True)
class Written:
    """A member with new bytes; mode is the Unix file type and permissions."""

    name: str
    data: bytes
    mode: int


@dataclass(frozen=True)
class Plan:
    """A whole wheel: its name and its members in order, RECORD last."""

    name: WheelName
    steps: tuple[Copied | Written, ...]
    provenance: Provenance


def plan_repack(
    base: BaseWheel,
    sources: Sources,
    scope: Scope,
    applied: AppliedTree,
    flavour: Flavour,
    version: str,
) -> Plan:
    """Plan a wheel that is the release's wheel with the series in it.

    Raises:
        RigError: the release wheel is not the pinned source's, or a change does not fit it.
    """
    pin = applied.pin
    known = pin.cpu.known_differences if pin.cpu and flavour is Flavour.CPU else ()
    check_against_source(base, sources.pristine, known, base.name.file_name)
    _check_changes(base, scope.packaged, set(known))
    name = WheelName(DISTRIBUTION, version, base.name.tag)
    replaced = {
        VERSION_PATH: rewrite_version_file(sources.version_file, pin.version, version),
        f"{base.name.dist_info}/METADATA": rewrite_metadata(
            base.metadata, base.name, version, flavour, pin.torch
        ),
        f"{base.name.dist_info}/WHEEL": rewrite_wheel(base.wheel, name.tags),
    }
    require_python(base.metadata, pin.python)
    removed = {f.path for f in scope.packaged if f.status == "D"}
    modes = {
        path: int(file.mode, 8)
        for path, file in sources.final.items()
        if path not in sources.pristine or file.mode != sources.pristine[path].mode
    }
    provenance = _provenance(applied, flavour, version, sources, replaced, removed)
    return _assemble(base, name, replaced | sources.contents, modes, removed, provenance)


def plan_finish(
    base: BaseWheel,
    sources: Sources,
    scope: Scope,
    applied: AppliedTree,
    flavour: Flavour,
    version: str,
    *,
    asks_for_torch: bool = True,
) -> Plan:
    """Plan the last step of a build from source: provenance and our version in a compiled wheel.

    Args:
        asks_for_torch: its METADATA has requirements; a wheel for no device has none.

    Raises:
        RigError: the compiled wheel's package is not the applied tree's, or it has another name
            or version than was asked for.
    """
    check_against_source(base, sources.final, (), base.name.file_name)
    wanted = {"Name": DISTRIBUTION, "Version": version}
    found = {k: ", ".join(header_values(base.metadata, k)) for k in wanted}
    if found != wanted or base.name.version != version:
        raise RigError(
            f"the compiled wheel says {found}, wanted {wanted}", where=base.name.file_name
        )
    removed = {f.path for f in scope.packaged if f.status == "D"}
    still_there = removed & base.names
    if still_there:
        raise RigError(
            "the compiled wheel holds files that the series removes",
            where=", ".join(sorted(still_there)),
        )
    replaced = {
        VERSION_PATH: rewrite_version_file(sources.version_file, applied.pin.version, version),
        f"{base.name.dist_info}/WHEEL": rewrite_wheel(base.wheel, base.name.tags),
    }
    if asks_for_torch:
        replaced[f"{base.name.dist_info}/METADATA"] = rewrite_metadata(
            base.metadata, base.name, version, flavour, applied.pin.torch
        )
    provenance = _provenance(applied, flavour, version, sources, replaced, removed)
    return _assemble(base, base.name, replaced, {}, set(), provenance)


def _check_changes(base: BaseWheel, packaged: Iterable[ChangedFile], known: set[str]) -> None:
    """Each change must meet the file it was made for."""
    problems = []
    for file in packaged:
        if file.status == "A" and file.path in base.names:
            problems.append(f"{file.path}: the series adds it, but the wheel has its own")
        elif file.path in known:
            problems.append(
                f"{file.path}: the CPU wheel has its own version of it, which the series was "
                "not made for"
            )
        elif file.status != "A" and base.blobs.get(file.path) != file.before:
            problems.append(f"{file.path}: the wheel's bytes are not those the series changes")
    if problems:
        raise RigError(
            "the series does not fit the release's wheel",
            where=base.name.file_name,
            detail="\n".join(problems),
            next_step="leave these files alone in this flavour, or build from source: "
            "`make build FROM=source`",
        )


def _provenance(
    applied: AppliedTree,
    flavour: Flavour,
    version: str,
    sources: Sources,
    replaced: Mapping[str, bytes],
    removed: set[str],
) -> Provenance:
    files = {**sources.contents, VERSION_PATH: replaced[VERSION_PATH]}
    return provenance_of(applied, flavour, version, files, sorted(removed))


def _assemble(
    base: BaseWheel,
    name: WheelName,
    new: Mapping[str, bytes],
    modes: Mapping[str, int],
    removed: set[str],
    provenance: Provenance,
) -> Plan:
    """Put the members in order: the wheel's own order, then new files, then dist-info.

    Args:
        new: path in the base wheel, or of an added file -> bytes.
        modes: path -> mode, where it is not the one that the wheel has.
    """
    old_info, new_info = f"{base.name.dist_info}/", f"{name.dist_info}/"
    own_modes = {m.name: m.mode for m in base.members}
    present = base.names
    if PROVENANCE_PATH in present:
        raise RigError(f"the wheel already has {PROVENANCE_PATH}", where=base.name.file_name)
    package: list[Copied | Written] = []
    info: list[Copied | Written] = []
    rows: dict[str, Row] = {}
    for member in base.members:
        if member.name in removed or member.name == f"{old_info}RECORD":
            continue
        in_info = member.name.startswith(old_info)
        target = new_info + member.name.removeprefix(old_info) if in_info else member.name
        step: Copied | Written = Copied(target, member)
        if member.name in new:
            mode = modes.get(member.name, member.mode) or _PLAIN_FILE
            step = Written(target, new[member.name], mode)
        else:
            rows[target] = base.record[member.name]
        (info if in_info else package).append(step)
    added = {p: d for p, d in new.items() if p not in present}
    added[PROVENANCE_PATH] = format_provenance(provenance)
    package += [Written(p, added[p], modes.get(p, _PLAIN_FILE)) for p in sorted(added)]
    steps = [*package, *info]
    listed = {s.name: row_of(s.data) if isinstance(s, Written) else rows[s.name] for s in steps}
    record_mode = own_modes[f"{old_info}RECORD"] or _PLAIN_FILE
    record = format_record(listed, f"{new_info}RECORD")
    steps.append(Written(f"{new_info}RECORD", record, record_mode))
    return Plan(name, tuple(steps), provenance)
