"""The command that looks for device anchors."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from rig.cli import app, built_wheel
from rig.cli_engine import _pin_with_cpu
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Flavour, find_pin


@app.command("anchors")
def anchors_command(
    version: Annotated[
        str | None, typer.Argument(help="A pinned release; the primary one if absent.")
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(help="Any vLLM tree instead, such as a new release's.")
    ] = None,
    arch: Annotated[
        list[str] | None, typer.Option(help="An architecture of vLLM's registry; all if absent.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all that was found there.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write the table there; runs the release alone, too.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Renew docs/device-anchors.json and the table there.")
    ] = False,
    python: Annotated[
        Path | None,
        typer.Option(help="An interpreter with what vLLM needs; the engine's if absent."),
    ] = None,
) -> None:
    """Run the towers of all multimodal models with their weights at rest on the host."""
    from rig.anchors.command import Wanted, anchors

    layout = layout_of_this_checkout()
    wanted = Wanted(tree, tuple(arch or ()), json, table, record)
    for number in (signal.SIGTERM, signal.SIGHUP):  # workers and scratch folders go, too
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    pin = find_pin(layout, version)
    status = anchors(layout, pin, lambda: python or engine_python(layout), wanted)
    raise typer.Exit(status)


def engine_python(layout: Layout) -> Path:
    """The interpreter of the newest engine that runs without a GPU, made ready if it is not."""
    from rig.rehearsal.environment import engine_environment

    pin = _pin_with_cpu(layout, None)
    wheel = built_wheel(layout, pin, Flavour.CPU)
    return engine_environment(layout, pin, wheel.path).python
