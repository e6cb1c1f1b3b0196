"""The command that builds an image."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rig.cli import app, built_wheel
from rig.console import console, out
from rig.errors import RigError
from rig.image.tools import Tool
from rig.layout import layout_of_this_checkout
from rig.pins import Arch, Flavour, find_pin, read_pins, this_arch


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def image(
    context: typer.Context,
    version: Annotated[
        str | None,
        typer.Argument(help="A pinned release; the primary one, or the newest with a CPU wheel."),
    ] = None,
    flavor: Annotated[Flavour, typer.Option(help="Which engine.")] = Flavour.CUDA,
    tool: Annotated[Tool | None, typer.Option(help="What builds; whichever is there.")] = None,
    base: Annotated[str | None, typer.Option(help="A base image of yours; not pinned.")] = None,
    arch: Annotated[Arch | None, typer.Option(help="This machine's if absent.")] = None,
    tag: Annotated[str | None, typer.Option(help="The image's name and tag.")] = None,
    wheel: Annotated[Path | None, typer.Option(help="A wheel of ours; else it is built.")] = None,
    pip_conf: Annotated[
        Path | None, typer.Option("--pip-conf", help="pip's settings, for the build alone.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the build's command; fetch no base image.")
    ] = False,
) -> None:
    """Build a container image; what follows `--` goes to docker, podman or buildah."""
    from rig.image.build import ImageWishes, build_image, plan_image, unresolved_base
    from rig.image.plan import build_command, start_command
    from rig.image.tools import find

    layout = layout_of_this_checkout()
    more = list(context.args)
    if version and version.startswith("-"):  # `rig image -- --layers=false`
        more, version = [version, *more], None
    arch = arch or this_arch()
    pin = find_pin(layout, version or None)
    if not version and flavor is Flavour.CPU:
        able = (p for p in read_pins(layout) if arch in p.wheels.get(Flavour.CPU, {}))
        pin = next(able, pin)
    if pip_conf is not None and not pip_conf.is_file():
        raise RigError("there is no such file", where=pip_conf, next_step="see --pip-conf")
    builder, unusable = find(tool)
    for line in unusable:
        console.print(f"not used: {line}", markup=False)
    path = wheel or built_wheel(layout, pin, flavor, arch).path
    wishes = ImageWishes(base, tag, pip_conf.absolute() if pip_conf else None, tuple(more))
    if dry_run:
        known = unresolved_base(pin, flavor, arch, base)
        plan = plan_image(layout, pin, flavor, arch, path, builder, known, wishes)
        out.print(shlex.join(build_command(plan)))
        return
    built = build_image(layout, pin, flavor, arch, path, builder, wishes)
    size = f", {built.bytes / 1e9:.2f} GB" if built.bytes is not None else ""
    out.print(f"built {built.tag} in {built.seconds:.0f} s{size}")
    for line in start_command(builder, built.tag, flavor):
        out.print(f"  next: {line}")
