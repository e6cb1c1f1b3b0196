"""The three texts of a wheel that carry its name and version: METADATA, WHEEL, _version.py.

Each is changed line by line; a line that is not there as expected is an error, since it means
that upstream changed something that a person should look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from rig.errors import RigError
from rig.pins import Flavour
from rig.wheel.naming import DISTRIBUTION, WheelName

# A CPU build runs without these; their public wheels link CUDA and break next to a CPU torch.
NOT_ASKED_OF_CPU = ("torchaudio", "torchcodec")


def rewrite_metadata(
    data: bytes, release: WheelName, version: str, flavour: Flavour, torch: str
) -> bytes:
    """METADATA under our name and version; for the CPU flavour with installable requirements.

    Args:
        release: the wheel that the METADATA comes from.
        version: ours.
        torch: the pinned torch version.

    Raises:
        RigError: a line is not there as expected.
    """
    headers, body = _split(data)
    headers = _replace_one(
        headers,
        "Name",
        DISTRIBUTION,
        lambda v: canonicalize_name(v) == canonicalize_name(release.distribution),
    )
    headers = _replace_one(headers, "Version", version, lambda v: v == release.version)
    if flavour is Flavour.CPU:
        return b"".join(_cpu_requirements(headers, torch)) + body
    if not any(_is_torch(r, torch) for r in _requirements(headers)):
        raise _unexpected(f"there is no requirement torch=={torch}")
    return b"".join(headers) + body


def require_python(data: bytes, pinned: str) -> None:
    """Compare METADATA's Requires-Python with the pin's.

    Raises:
        RigError: they differ.
    """
    found = header_values(data, "Requires-Python")
    if [SpecifierSet(f) for f in found] != [SpecifierSet(pinned)]:
        raise _unexpected(
            f"it says Requires-Python {', '.join(found) or 'nowhere'}, the pin says {pinned}"
        )


def _cpu_requirements(headers: list[bytes], torch: str) -> list[bytes]:
    asked = f"torch=={torch}+cpu"
    kept, found = [], list[str]()
    for line in headers:
        requirement = _requirement(line)
        if requirement and requirement.name in NOT_ASKED_OF_CPU:
            found.append(requirement.name)
            continue
        if requirement and _is_torch(requirement, f"{torch}+cpu"):
            if line.count(asked.encode()) != 1:
                raise _unexpected(f"{asked} is written in another way: {_text(line)}")
            found.append(asked)
            line = line.replace(asked.encode(), f"torch=={torch}".encode())
        kept.append(line)
    if sorted(found) != sorted((asked, *NOT_ASKED_OF_CPU)):
        raise _unexpected(
            f"a CPU wheel asks once for each of {asked}, {', '.join(NOT_ASKED_OF_CPU)}; "
            f"this one asks for {', '.join(found) or 'none of them'}"
        )
    return kept


def rewrite_wheel(data: bytes, tags: Iterable[str]) -> bytes:
    """WHEEL with the tags of the file name; upstream's contradict its own file names.

    Raises:
        RigError: it is not a WHEEL file of version 1, or has no tag.
    """
    headers, body = _split(data)
    if not any(_value(line, "Wheel-Version", "").startswith("1.") for line in headers):
        raise _unexpected("WHEEL is not of Wheel-Version 1", "WHEEL")
    at = [n for n, line in enumerate(headers) if _field(line) == "Tag"]
    if not at:
        raise _unexpected("WHEEL names no tag", "WHEEL")
    ours = [f"Tag: {tag}\n".encode() for tag in tags]
    others = [line for line in headers[at[0] :] if _field(line) != "Tag"]
    return b"".join([*headers[: at[0]], *ours, *others]) + body


def rewrite_version_file(data: bytes, release: str, version: str) -> bytes:
    """`vllm/_version.py` with our version, in the form that setuptools-scm writes.

    The first two entries of the tuple stay integers: vLLM compares them. The commit id stays.

    Raises:
        RigError: the version lines are not there as expected.
    """
    text = data.decode("utf-8")
    plain, ours = Version(release), Version(version)
    if ours.local is None or ours.release != plain.release:
        raise RigError(f"{version} is no local version of {release}")
    entries = (*ours.release, ours.local)
    for old, new in (
        (f"__version__ = version = {release!r}", f"__version__ = version = {version!r}"),
        (
            f"__version_tuple__ = version_tuple = {plain.release!r}",
            f"__version_tuple__ = version_tuple = {entries!r}",
        ),
    ):
        pattern = re.compile(rf"^{re.escape(old)}$", re.MULTILINE)
        if len(pattern.findall(text)) != 1:
            raise _unexpected(f"there is no single line `{old}`", "vllm/_version.py")
        text = pattern.sub(lambda _, new=new: new, text)  # type: ignore[misc]
    if len(re.findall(r"^__commit_id__ = commit_id = .+$", text, re.MULTILINE)) != 1:
        raise _unexpected("there is no single line with the commit id", "vllm/_version.py")
    return text.encode()


def header_values(data: bytes, name: str) -> list[str]:
    """The values of one header field of METADATA or WHEEL."""
    headers, _ = _split(data)
    return [_value(line, name, "") for line in headers if _field(line) == name]


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """The header lines, and everything from the empty line on."""
    if b"\r" in data.split(b"\n\n", 1)[0]:
        raise _unexpected("its lines end in CR LF")
    lines = data.splitlines(keepends=True)
    end = next((n for n, line in enumerate(lines) if line == b"\n"), len(lines))
    return lines[:end], b"".join(lines[end:])


def _field(line: bytes) -> str:
    """The field's name; empty for the continuation of the line above."""
    if line[:1].isspace():
        return ""
    return _text(line).partition(":")[0]


def _value(line: bytes, field: str, default: str) -> str:
    return _text(line).partition(":")[2].strip() if _field(line) == field else default


def _replace_one(
    headers: list[bytes], field: str, value: str, expected: Callable[[str], bool]
) -> list[bytes]:
    at = [n for n, line in enumerate(headers) if _field(line) == field]
    if len(at) != 1 or not expected(_value(headers[at[0]], field, "")):
        found = [_text(headers[n]) for n in at]
        raise _unexpected(f"the field {field} is not as the file name says: {found or 'missing'}")
    return [*headers[: at[0]], f"{field}: {value}\n".encode(), *headers[at[0] + 1 :]]


def _requirement(line: bytes) -> Requirement | None:
    if _field(line) != "Requires-Dist":
        return None
    try:
        return Requirement(_value(line, "Requires-Dist", ""))
    except InvalidRequirement as error:
        raise _unexpected(f"this requirement cannot be read: {_text(line)}") from error


def _requirements(headers: list[bytes]) -> list[Requirement]:
    return [r for line in headers if (r := _requirement(line)) is not None]


def _is_torch(requirement: Requirement, version: str) -> bool:
    return requirement.name == "torch" and str(requirement.specifier) == f"=={version}"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\n")


def _unexpected(what: str, file: str = "METADATA") -> RigError:
    return RigError(
        f"the wheel's {file} is not as expected: {what}",
        where=file,
        next_step="upstream changed how it packages: look at the wheel, then correct "
        "scripts/rig/wheel/metadata.py or the pin",
    )
