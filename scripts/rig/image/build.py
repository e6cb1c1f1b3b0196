"""`rig image`: the wheel, the base image, the folder, the build."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.console import console
from rig.download import sha256_of
from rig.errors import RigError, first_line_of_os_error
from rig.image.base import Base, default_name, pinned_digest, repository, resolve_base
from rig.image.context import plan_context, write_context
from rig.image.plan import ImagePlan, build_command, labels_of, tag_of
from rig.image.tools import Tool, ask, inspect_command, read_inspection
from rig.layout import Layout
from rig.pins import Arch, Flavour, Pin
from rig.rehearsal.locks import locked
from rig.wheel.inspect import describe


@dataclass(frozen=True)
class ImageWishes:
    """What a person asked for.

    Args:
        base: a base image of theirs.
        tag: a name of theirs.
        pip_settings: a pip.conf for the build.
        more: arguments for the tool.
    """

    base: str | None = None
    tag: str | None = None
    pip_settings: Path | None = None
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuiltImage:
    """An image that was built; `bytes` is None where the tool does not say."""

    tag: str
    base: Base
    seconds: float
    bytes: int | None


def context_folder(layout: Layout, pin: Pin, flavour: Flavour) -> Path:
    """Where an image's folder lies."""
    return layout.build / "image" / f"{pin.version}-{flavour}"


def plan_image(
    layout: Layout,
    pin: Pin,
    flavour: Flavour,
    arch: Arch,
    wheel: Path,
    tool: Tool,
    base: Base,
    wishes: ImageWishes,
) -> ImagePlan:
    """The image to be built from a wheel.

    Raises:
        RigError: the wheel is damaged, or is of another release, flavour or processor.
    """
    provenance = describe(wheel)
    if (provenance.release, provenance.flavour) != (pin.version, flavour):
        raise RigError(
            f"the wheel is vLLM {provenance.release} for {provenance.flavour}, "
            f"the image is to be {pin.version} for {flavour}",
            where=wheel,
            next_step="name the release and --flavor of the wheel, or leave --wheel out",
        )
    if not wheel.stem.endswith((arch, "-any")):
        raise RigError(
            f"the wheel is for another processor, the image is to be for {arch}",
            where=wheel,
            next_step="name the processor of the wheel with --arch, or leave --wheel out",
        )
    return ImagePlan(
        tool=tool,
        tag=wishes.tag or tag_of(provenance.version, flavour),
        arch=arch,
        base=base,
        labels=labels_of(provenance, sha256_of(wheel), base),
        context=context_folder(layout, pin, flavour),
        pip_settings=wishes.pip_settings,
        more=wishes.more,
    )


def unresolved_base(pin: Pin, flavour: Flavour, arch: Arch, own: str | None) -> Base:
    """The base as far as it is known without asking anybody."""
    name = own or default_name(pin, flavour)
    digest = None if own else pinned_digest(pin, flavour, arch)
    return Base(f"{repository(name)}@{digest}" if digest else name, name, digest or "")


def build_image(
    layout: Layout,
    pin: Pin,
    flavour: Flavour,
    arch: Arch,
    wheel: Path,
    tool: Tool,
    wishes: ImageWishes,
) -> BuiltImage:
    """Build an image out of a wheel.

    Raises:
        RigError: the base image is not right, or the tool failed.
    """
    unresolved = unresolved_base(pin, flavour, arch, wishes.base)
    plan_image(layout, pin, flavour, arch, wheel, tool, unresolved, wishes)  # before gigabytes come
    base = resolve_base(layout, pin, flavour, arch, tool, own=wishes.base, run=run_shown)
    if base.recorded:
        console.print(f"recorded in patches/pins/{pin.version}.toml: {base.name} is {base.digest}")
    plan = plan_image(layout, pin, flavour, arch, wheel, tool, base, wishes)
    with locked(plan.context.with_name(f"{plan.context.name}.lock"), "building this image") as lock:
        write_context(plan_context(layout, pin, flavour, wheel), plan.context)
        started = time.monotonic()
        # The tool holds the lock too: if this process is killed, it still reads the folder.
        run_shown(build_command(plan), pass_fds=(lock,))
        seconds = time.monotonic() - started
    answered = ask(inspect_command(tool, plan.tag))
    found = read_inspection(tool, answered.out, "") if answered.status == 0 else None
    return BuiltImage(plan.tag, base, seconds, found.bytes if found else None)


def run_shown(command: Sequence[str], pass_fds: Collection[int] = ()) -> None:
    """Run a command whose output people want to see.

    Args:
        pass_fds: file descriptors that it keeps open.

    Raises:
        RigError: it cannot be started, or fails.
    """
    console.print(f"$ {shlex.join(command)}", markup=False)
    environment = dict(os.environ)
    if command[0] == Tool.DOCKER:
        environment.setdefault("DOCKER_BUILDKIT", "1")  # the secret needs it
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=pass_fds,
            check=False,
        )
    except KeyboardInterrupt:
        console.print(
            f"interrupted: the same command goes on after the steps that were done{_left(command)}",
            markup=False,
        )
        raise
    except OSError as error:
        raise RigError(f"cannot run {command[0]}: {first_line_of_os_error(error)}") from error
    if done.returncode != 0:
        raise RigError(
            f"{command[0]} {command[1]} failed with status {done.returncode}",
            next_step="it says why, above; docs/images.md has the usual causes",
        )


def _left(command: Sequence[str]) -> str:
    """What an interrupted command leaves behind, for a person to remove."""
    if command[:2] != [Tool.BUILDAH, "build"]:
        return ""
    return "; `buildah containers` lists what buildah left, `buildah rm ID` removes one"
