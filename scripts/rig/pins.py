"""Pins: which vLLM releases the series stands on, and the digests that prove them."""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from rig.errors import RigError
from rig.layout import Layout


class Role(StrEnum):
    """What a pin is for: patch bytes are exported from the primary one only."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class Flavour(StrEnum):
    """Which of a release's engines a wheel holds."""

    CUDA = "cuda"
    CPU = "cpu"


class Arch(StrEnum):
    """Processor names as wheels write them."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


def this_arch() -> Arch:
    """This machine's processor.

    Raises:
        RigError: vLLM releases no wheels for it.
    """
    name = platform.machine().lower()
    try:
        return Arch({"amd64": "x86_64", "arm64": "aarch64"}.get(name, name))
    except ValueError as error:
        raise RigError(
            f"vLLM has no wheels for the processor {name}",
            next_step=f"use a machine with {' or '.join(Arch)}",
        ) from error


def _version(text: str) -> str:
    try:
        parsed = Version(text)
    except InvalidVersion as error:
        raise ValueError(f"{text!r} is not a version") from error
    if str(parsed) != text or parsed.local:
        raise ValueError(f"{text!r} is not a release version in its plain form")
    return text


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,40}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._+-]+$")]
# Without a host: the container tool's own settings say where images come from.
ImageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9._-]+(/[a-z0-9._-]+)*:[\w.-]+$")]
ImageDigest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
PatchNumber = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}$")]
Reason = Annotated[str, StringConstraints(min_length=10, strip_whitespace=True)]
ReleaseVersion = Annotated[str, AfterValidator(_version)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Artifact(_Strict):
    """One file of a release: its name on the index and the digest of its bytes."""

    name: FileName
    sha256: Sha256


class CpuTree(_Strict):
    """How the CPU wheel's Python tree differs from the release's.

    Args:
        known_differences: paths under the wheel's root whose bytes differ from the sdist's.
            Any other difference makes the build refuse.
    """

    known_differences: tuple[str, ...]


class BaseImage(_Strict):
    """The release's official image, as it was when an image of ours was first built on it.

    Args:
        name: with its tag.
        digests: processor -> digest. Another image under the same tag is refused.
    """

    name: ImageName
    digests: dict[Arch, ImageDigest] = Field(min_length=1)


class Pin(_Strict):
    """One vLLM release, pinned.

    Args:
        version: the release.
        role: primary or secondary.
        commit: the upstream commit, as far as the release's own `_version.py` gives it.
        python: the release's Requires-Python.
        torch: the torch version that the release asks for.
        sdist: the whole source tree, tests included.
        wheels: flavour -> processor -> wheel. A missing flavour does not exist on the index.
        cpu: needed when there is a CPU wheel.
        skip: patch number -> why this pin must not carry that patch.
        image: written by `rig image`, which looks it up; None until then.
    """

    version: ReleaseVersion
    role: Role
    commit: Commit
    python: str
    torch: ReleaseVersion
    sdist: Artifact
    wheels: dict[Flavour, dict[Arch, Artifact]] = Field(min_length=1)
    cpu: CpuTree | None = None
    skip: dict[PatchNumber, Reason] = Field(default_factory=dict)
    image: BaseImage | None = None

    @model_validator(mode="after")
    def _cpu_wheel_has_a_tree(self) -> Pin:
        if (Flavour.CPU in self.wheels) != (self.cpu is not None):
            raise ValueError("[wheels.cpu.*] and [cpu] come together: give both or neither")
        if self.sdist.name != f"vllm-{self.version}.tar.gz":
            raise ValueError(f"sdist.name must be vllm-{self.version}.tar.gz")
        for flavour, by_arch in self.wheels.items():
            for arch, wheel in by_arch.items():
                if not re.fullmatch(rf"vllm(_cpu)?-{re.escape(self.version)}-.*\.whl", wheel.name):
                    raise ValueError(f"wheels.{flavour}.{arch}.name is of another version")
        return self

    def wheel(self, flavour: Flavour, arch: Arch) -> Artifact:
        """The release wheel to build on.

        Raises:
            RigError: the release has none; says which it has.
        """
        found = self.wheels.get(flavour, {}).get(arch)
        if found is None:
            have = ", ".join(f"{f} {a}" for f, by in self.wheels.items() for a in by)
            raise RigError(
                f"vLLM {self.version} has no {flavour} wheel for {arch} on the index",
                where=f"patches/pins/{self.version}.toml",
                next_step=f"this pin has: {have}; other pins: `./rig pins`",
            )
        return found


def read_pin(path: Path) -> Pin:
    """Read one pin file.

    Raises:
        RigError: the file cannot be read, is not TOML, or a key is missing, unknown or wrong.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
        pin = Pin.model_validate(raw)
    except OSError as error:
        raise RigError(
            f"cannot read the pin: {error.strerror}",
            where=path,
            next_step="restore it from git, or give yourself the right to read it",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RigError(
            f"the pin is not TOML: {error}", where=path, next_step="compare it with another pin"
        ) from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(p) for p in e['loc']) or '(file)'}: {e['msg']}" for e in error.errors()
        ]
        raise RigError(
            "the pin does not hold what a pin must hold",
            where=path,
            detail="\n".join(problems),
            next_step="correct the keys named above; `./rig pins add` writes a right file",
        ) from error
    if path.stem != pin.version:
        raise RigError(
            f"the file name says {path.stem}, its version key {pin.version}",
            where=path,
            next_step="name the file after its version",
        )
    return pin


def read_pins(layout: Layout) -> list[Pin]:
    """All pins, newest first; exactly one is primary.

    Raises:
        RigError: a pin is wrong, or there is not exactly one primary.
    """
    pins = [read_pin(p) for p in layout.pins.glob("*.toml")]
    pins.sort(key=lambda p: Version(p.version), reverse=True)
    primary = [p.version for p in pins if p.role is Role.PRIMARY]
    if len(primary) != 1:
        raise RigError(
            f"{len(primary)} pins have the role primary, there must be one: {', '.join(primary)}",
            where=layout.shown(layout.pins),
            next_step="set role in the pin files",
        )
    return pins


def primary_pin(layout: Layout) -> Pin:
    """The pin whose bytes the patches are exported from."""
    return next(p for p in read_pins(layout) if p.role is Role.PRIMARY)


def find_pin(layout: Layout, version: str | None) -> Pin:
    """One pin by version; the primary one when no version is given.

    Raises:
        RigError: there is no such pin; says which exist and which is nearest.
    """
    pins = read_pins(layout)
    if version is None:
        return next(p for p in pins if p.role is Role.PRIMARY)
    for pin in pins:
        if pin.version == version.removeprefix("v"):
            return pin
    names = [p.version for p in pins]
    near = neighbours(version, names)
    raise RigError(
        f"vLLM {version} is not pinned",
        where=layout.shown(layout.pins),
        next_step=f"pinned: {', '.join(names)}"
        + (f" (nearest: {', '.join(near)})" if near else "")
        + "; `./rig pins add VERSION` adds a release, if the package index has it",
    )


def neighbours(version: str, known: Iterable[str]) -> list[str]:
    """The known releases next before and next after a version; none if it is not a version."""
    try:
        meant = Version(version)
    except InvalidVersion:
        return []
    order = sorted(known, key=Version)
    before = [one for one in order if Version(one) <= meant]
    return before[-1:] + order[len(before) :][:1]
