"""The command that builds an image. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.image.base import Base
from rig.image.tools import PLATFORM, Tool
from rig.pins import Arch, Flavour
from rig.wheel.provenance import Provenance

NAME = "vllm-rig"
_OCI = "org.opencontainers.image"


@dataclass(frozen=True)
class ImagePlan:
    """An image to be built.

    Args:
        tag: what it is called.
        labels: what it says of itself.
        context: the folder that it is built in.
        pip_settings: a pip.conf that the build may read and that stays in no layer.
        more: arguments for the tool, after ours.
    """

    tool: Tool
    tag: str
    arch: Arch
    base: Base
    labels: dict[str, str]
    context: Path
    pip_settings: Path | None = None
    more: tuple[str, ...] = ()


def tag_of(version: str, flavour: Flavour) -> str:
    """`vllm-rig:0.33.0-rig.4-cuda`; a tag holds no plus sign."""
    release, _, local = version.partition("+")
    return f"{NAME}:{release}-{local.removesuffix('.cpu')}-{flavour}"


def labels_of(provenance: Provenance, wheel_sha256: str, base: Base) -> dict[str, str]:
    """What an image says of itself: the release, the series, the tree, the wheel, the base."""
    labels = {
        f"{_OCI}.title": NAME,
        f"{_OCI}.description": "vLLM with a patch series for consumer cards on PCIe",
        f"{_OCI}.licenses": "Apache-2.0",
        f"{_OCI}.version": provenance.version,
        f"{_OCI}.base.name": base.name,
        "vllm-rig.pin": provenance.release,
        "vllm-rig.commit": provenance.commit,
        "vllm-rig.flavour": str(provenance.flavour),
        "vllm-rig.series": provenance.series,
        "vllm-rig.tree": provenance.tree,
        "vllm-rig.wheel.sha256": wheel_sha256,
    }
    if base.digest:
        labels[f"{_OCI}.base.digest"] = base.digest
    return labels


def build_command(plan: ImagePlan) -> list[str]:
    """The whole command. Podman and buildah keep a HEALTHCHECK in docker's format only."""
    command: list[str] = [plan.tool, "build", "--platform", f"linux/{PLATFORM[plan.arch]}"]
    if plan.tool is not Tool.DOCKER:
        # The base image is here already; `false` fetches only what is missing. Without --force-rm
        # a build that fails leaves its container, and the disk that it takes.
        command += ["--format", "docker", "--layers", "--force-rm", "--pull=false"]
    command += ["--build-arg", f"BASE={plan.base.reference}"]
    command += ["--build-arg", f"RIG_ARCH={plan.arch}"]
    for name, value in plan.labels.items():
        command += ["--label", f"{name}={value}"]
    if plan.pip_settings is not None:
        command += ["--secret", f"id=pip,src={plan.pip_settings}"]
    command += ["--tag", plan.tag, *plan.more, str(plan.context)]
    return command


def start_command(tool: Tool, tag: str, flavour: Flavour) -> Sequence[str]:
    """How the image is started, for a person to copy."""
    if tool is Tool.BUILDAH:
        return (f"buildah push {tag} docker-daemon:{tag}", "or `podman run`: see docs/images.md")
    cards = ["--gpus", "all"] if tool is Tool.DOCKER else ["--device", "nvidia.com/gpu=all"]
    command: list[str] = [tool, "run", "--rm", "--init"]
    command += cards if flavour is Flavour.CUDA else []
    command += ["--shm-size", "16g", "--ulimit", "memlock=-1", "-e", "RIG_HOST=0.0.0.0"]
    command += ["-p", "127.0.0.1:8000:8000", "-v", "vllm-rig-cache:/cache", tag, "MODEL"]
    return (" ".join(command),)
