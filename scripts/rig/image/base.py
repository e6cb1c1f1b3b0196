"""The image that ours stands on: found, compared with the pin, recorded in it.

A tag can be moved; a digest cannot. The first build looks up which image the tag names and writes
its digest into the pin; every later build asks for that digest and for nothing else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rig.errors import RigError
from rig.image.tools import (
    PLATFORM,
    Ask,
    ImageFacts,
    Tool,
    ask,
    inspect_command,
    pull_command,
    read_inspection,
)
from rig.layout import Layout
from rig.pins import Arch, Flavour, Pin, read_pin
from rig.series.lock import replace_file

CPU_BASE = "python:3.12-slim-bookworm"
Run = Callable[[Sequence[str]], None]


@dataclass(frozen=True)
class Base:
    """A base image that is here.

    Args:
        reference: what FROM is given.
        name: what it is called by people.
        digest: of its manifest; "" if the tool does not say (an image that was made here).
        recorded: its digest was written into the pin just now.
    """

    reference: str
    name: str
    digest: str
    recorded: bool = False


def default_name(pin: Pin, flavour: Flavour) -> str:
    """The name with its tag, as a person would type it."""
    if flavour is Flavour.CPU:
        return CPU_BASE
    return pin.image.name if pin.image else f"vllm/vllm-openai:v{pin.version}"


def repository(reference: str) -> str:
    """A reference without its tag and digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def pinned_digest(pin: Pin, flavour: Flavour, arch: Arch) -> str | None:
    """The digest that a build must stand on; None before the first build."""
    if flavour is Flavour.CPU or pin.image is None:
        return None
    return pin.image.digests.get(arch)


def resolve_base(
    layout: Layout,
    pin: Pin,
    flavour: Flavour,
    arch: Arch,
    tool: Tool,
    *,
    own: str | None = None,
    ask: Ask = ask,
    run: Run,
) -> Base:
    """Have the base image here, and be sure that it is the right one.

    Args:
        own: a base image of the user's, which no pin speaks of.
        run: shows a command's output while it fetches.

    Raises:
        RigError: it cannot be had, is for another processor, or is not the pinned one.
    """
    name = own or default_name(pin, flavour)
    pinned = None if own else pinned_digest(pin, flavour, arch)
    reference = f"{repository(name)}@{pinned}" if pinned else name
    # An unpinned tag is looked up anew: what lies here under it may be an old one.
    found = None if not own and not pinned else _look(tool, reference, ask)
    if found is None:
        run(pull_command(tool, reference, arch))
        found = _look(tool, reference, ask)
    if found is None:
        raise RigError(f"{tool} fetched {reference}, but does not know it", where=name)
    _check_arch(found, arch, reference)
    if pinned and found.digests and pinned not in found.digests:
        raise RigError(
            f"the base image {name} is not the pinned one",
            where=f"pinned {pinned}, here {', '.join(found.digests)}",
            next_step="do not use it; if the release's image was replaced on purpose, change "
            f"[image.digests] in patches/pins/{pin.version}.toml in a commit that says why",
        )
    digest = pinned or (found.digests[0] if found.digests else "")
    if own or pinned or flavour is Flavour.CPU:
        return Base(reference, name, digest)
    if not digest:
        raise RigError(
            f"{tool} gives no digest for {name}, so it cannot be pinned",
            where=name,
            next_step="pull it from a registry with docker or podman, then build again",
        )
    record(layout, pin, name, arch, digest)
    return Base(f"{repository(name)}@{digest}", name, digest, recorded=True)


def _look(tool: Tool, reference: str, ask: Ask) -> ImageFacts | None:
    answered = ask(inspect_command(tool, reference))
    if answered.status != 0:
        return None
    return read_inspection(tool, answered.out, repository(reference))


def _check_arch(found: ImageFacts, arch: Arch, reference: str) -> None:
    if found.arch and found.arch != PLATFORM[arch]:
        raise RigError(
            f"the base image is for {found.arch}, the image is to be for {PLATFORM[arch]}",
            where=reference,
            next_step="remove it here and build again: the right one is fetched then; "
            "or name the processor with --arch",
        )


def record(layout: Layout, pin: Pin, name: str, arch: Arch, digest: str) -> None:
    """Write a digest into the pin; the rest of the file stays as it is.

    Raises:
        RigError: the file would not be a pin afterwards; it is left as it was.
    """
    path = layout.pins / f"{pin.version}.toml"
    before = path.read_bytes()
    replace_file(path, with_digest(before.decode(), name, arch, digest).encode())
    try:
        read_pin(path)
    except RigError:
        replace_file(path, before)
        raise


def with_digest(text: str, name: str, arch: Arch, digest: str) -> str:
    """A pin's text with one more digest in its [image.digests]. Pure."""
    line = f'{arch} = "{digest}"\n'
    if "image" not in tomllib.loads(text):
        return f'{text.rstrip()}\n\n[image]\nname = "{name}"\n\n[image.digests]\n{line}'
    head, table, rest = text.partition("[image.digests]\n")
    return head + table + line + rest
