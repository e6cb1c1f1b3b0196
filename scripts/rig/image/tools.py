"""The programs that build images: which is there, and what each is asked. Pure but for `find`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rig.errors import RigError
from rig.pins import Arch

_PATIENCE_S = 30.0
# Processors as image makers write them.
PLATFORM = {Arch.X86_64: "amd64", Arch.AARCH64: "arm64"}


class Tool(StrEnum):
    """What builds images, in the order of preference."""

    DOCKER = "docker"
    PODMAN = "podman"
    BUILDAH = "buildah"


@dataclass(frozen=True)
class Answered:
    """What a command came to."""

    status: int
    out: str
    error: str


Ask = Callable[[Sequence[str]], Answered]


def ask(command: Sequence[str]) -> Answered:
    """Run a short command; a program that is not there has status 127."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except OSError as error:
        return Answered(127, "", error.strerror or str(error))
    except subprocess.TimeoutExpired:
        return Answered(124, "", f"no answer within {_PATIENCE_S:g} s")
    return Answered(done.returncode, done.stdout, done.stderr)


def probe(tool: Tool) -> list[str]:
    """The command that succeeds if a tool can build: docker's client needs its engine."""
    if tool is Tool.DOCKER:
        return ["docker", "version", "--format", "{{.Server.Version}}"]
    return [tool, "info"]


def find(
    wanted: Tool | None = None,
    *,
    ask: Ask = ask,
    which: Callable[[str], str | None] = shutil.which,
) -> tuple[Tool, list[str]]:
    """The tool to use, and what is wrong with those before it.

    Raises:
        RigError: none can be used; says why of each.
    """
    said = []
    for tool in [wanted] if wanted else list(Tool):
        if which(tool) is None:
            said.append(f"{tool}: not installed")
            continue
        answered = ask(probe(tool))
        if answered.status == 0:
            return tool, [line for line in said if "not installed" not in line]
        lines = answered.error.strip().splitlines()
        said.append(f"{tool}: {lines[-1] if lines else f'status {answered.status}'}")
    raise RigError(
        "no program that builds images can be used",
        detail="\n".join(said),
        next_step="install docker, podman or buildah; start docker's engine, or put your user "
        "into the group that may use it",
    )


def pull_command(tool: Tool, reference: str, arch: Arch) -> list[str]:
    """Fetch an image for a processor."""
    return [tool, "pull", "--platform", f"linux/{PLATFORM[arch]}", reference]


def inspect_command(tool: Tool, reference: str) -> list[str]:
    """Ask about an image that is here, in JSON."""
    if tool is Tool.BUILDAH:
        return ["buildah", "inspect", "--type", "image", reference]
    return [tool, "image", "inspect", reference]


@dataclass(frozen=True)
class ImageFacts:
    """What a tool says of an image.

    Args:
        digests: of its manifest, and of the list of manifests that it was found by; the first
            is the one to record.
        arch: "amd64"; "" when it is not said.
        bytes: its size; None when it is not said.
    """

    digests: tuple[str, ...]
    arch: str
    bytes: int | None


def read_inspection(tool: Tool, text: str, repository: str) -> ImageFacts:
    """Read the answer to `inspect_command`.

    Args:
        repository: the name without a tag; digests under other names say nothing about it.

    Raises:
        RigError: the answer is not of the form that is known here.
    """
    try:
        answer: Any = json.loads(text)
        if tool is Tool.BUILDAH:
            # FromImageDigest is the processor's own manifest. Of an image of several processors
            # the digest of the list, which was checked when it was fetched, stands in its name.
            named = _named({"RepoDigests": [answer.get("FromImage") or ""]}, repository)
            found = [answer.get("FromImageDigest") or "", *named]
            arch = answer.get("OCIv1", {}).get("architecture", "")
            size = None
        else:
            (answer,) = answer
            found = [*_named(answer, repository), answer.get("Digest") or ""]
            arch, size = answer.get("Architecture", ""), answer.get("Size")
    except (ValueError, AttributeError, TypeError) as error:
        raise RigError(
            f"{tool} describes an image in a form that is not known here: {error!r}",
            detail=text[:500],
            next_step="please report it with the version of the tool, or use another one",
        ) from error
    return ImageFacts(tuple(dict.fromkeys(filter(None, found))), arch, size)


def _named(answer: dict[str, Any], repository: str) -> list[str]:
    """The digests of `repository@sha256:...`; a host may stand before the name."""
    names = answer.get("RepoDigests") or []
    return [
        digest
        for name, at, digest in (str(n).partition("@") for n in names)
        if at and (name == repository or name.endswith(f"/{repository}"))
    ]
