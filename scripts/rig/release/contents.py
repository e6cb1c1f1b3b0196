"""What a built wheel says about itself, read once for its SBOM and its provenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rig.pins import Arch
from rig.wheel.inspect import inspect_wheel, open_wheel
from rig.wheel.metadata import header_values
from rig.wheel.provenance import Provenance
from rig.wheel.record import hex_digest, parse_record

_PYTHONS = tuple(f"3.{minor}" for minor in range(9, 31))


@dataclass(frozen=True)
class Wanting:
    """What a wheel wants of one project.

    Args:
        version: the only version that it takes; None where it takes several.
        optional: wanted by extras only.
        requirements: as METADATA writes them.
    """

    name: str
    version: str | None
    optional: bool
    requirements: tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """A wheel's own words.

    Args:
        libraries: compiled members -> sha256.
        wants: by name; only what can hold on its platform.
    """

    name: str
    sha256: str
    licence: str
    provenance: Provenance
    libraries: dict[str, str]
    wants: tuple[Wanting, ...]


def read_contents(wheel: Path, sha256: str, arch: Arch) -> Contents:
    """Unpack and hash every member of a wheel, and read what it says.

    Args:
        sha256: the digest that it was built with.

    Raises:
        RigError: the wheel is not whole, or does not agree with itself.
    """
    report = inspect_wheel(wheel, full=True)
    info = report.name.dist_info
    with open_wheel(wheel) as archive:
        metadata = archive.read(f"{info}/METADATA")
        record = parse_record(archive.read(f"{info}/RECORD"), f"{info}/RECORD", wheel)
    pythons = [p for p in _PYTHONS if _allows(header_values(metadata, "Requires-Python"), p)]
    return Contents(
        name=wheel.name,
        sha256=sha256,
        licence=next(iter(header_values(metadata, "License-Expression")), ""),
        provenance=report.provenance,
        libraries={
            name: hex_digest(row) for name, row in sorted(record.items()) if _is_library(name)
        },
        wants=tuple(_wants(metadata, arch, pythons)),
    )


def _allows(specifiers: Iterable[str], python: str) -> bool:
    return all(SpecifierSet(s).contains(f"{python}.99") for s in specifiers)


def _is_library(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.endswith(".so") or ".so." in file


def _wants(metadata: bytes, arch: Arch, pythons: list[str]) -> Iterator[Wanting]:
    extras = ["", *header_values(metadata, "Provides-Extra")]
    by_name: dict[str, list[Requirement]] = {}
    lines: dict[str, list[str]] = {}
    for line in header_values(metadata, "Requires-Dist"):
        requirement = Requirement(line)
        if _can_hold(requirement, arch, pythons, extras):
            name = str(canonicalize_name(requirement.name))
            by_name.setdefault(name, []).append(requirement)
            lines.setdefault(name, []).append(line)
    for name, found in sorted(by_name.items()):
        needed = [r for r in found if _can_hold(r, arch, pythons, [""])]
        versions = {_only_version(r) for r in needed or found}
        yield Wanting(
            name=name,
            version=versions.pop() if len(versions) == 1 else None,
            optional=not needed,
            requirements=tuple(lines[name]),
        )


def _can_hold(
    requirement: Requirement, arch: Arch, pythons: Iterable[str], extras: Iterable[str]
) -> bool:
    """Whether it holds on Linux with one of these Pythons and one of these extras."""
    marker = requirement.marker
    if marker is None:
        return True
    platform = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": arch.value,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    return any(
        marker.evaluate(
            {**platform, "python_version": p, "python_full_version": f"{p}.0", "extra": extra}
        )
        for p in pythons
        for extra in extras
    )


def _only_version(requirement: Requirement) -> str | None:
    specifiers = list(requirement.specifier)
    exact = [s.version for s in specifiers if s.operator in ("==", "===") and "*" not in s.version]
    return exact[0] if len(specifiers) == 1 and exact else None
