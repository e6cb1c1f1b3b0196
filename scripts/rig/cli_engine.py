"""The commands that need the engine: rehearse, serve, absence."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rig.cli import app, built_wheel
from rig.console import out
from rig.errors import RigError
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Flavour, Pin, find_pin, read_pins, this_arch


class Executor(StrEnum):
    """How vLLM's workers are started."""

    RAY = "ray"
    MP = "mp"


@app.command()
def rehearse(
    version: Annotated[
        str | None, typer.Argument(help="A release with a CPU wheel; the newest if absent.")
    ] = None,
    ranks: Annotated[int, typer.Option(help="Tensor parallel ranks: 1, 2 or 4.")] = 4,
    executor: Annotated[
        Executor, typer.Option(help="ray, or mp for vLLM's own processes.")
    ] = Executor.RAY,
    offload_towers: Annotated[
        bool,
        typer.Option("--offload-towers", help="Stream the vision tower's weights from the host."),
    ] = False,
) -> None:
    """Build the CPU engine, serve a tiny model on four ranks, ask it about a photograph, stop."""
    from rig.rehearsal.rehearse import rehearse as run_rehearsal

    if ranks not in (1, 2, 4):
        raise RigError(
            f"the tiny model has heads for 1, 2 or 4 ranks, not {ranks}",
            next_step="make rehearse RANKS=4",
        )
    layout = layout_of_this_checkout()
    pin = _pin_with_cpu(layout, version)
    wheel = built_wheel(layout, pin, Flavour.CPU)
    run_rehearsal(
        layout,
        pin,
        wheel.path,
        ranks=ranks,
        executor="mp" if executor == "mp" else "ray",
        offload_towers=offload_towers,
    )


def _pin_with_cpu(layout: Layout, version: str | None) -> Pin:
    """The pin of a release, or the newest one, that has a CPU engine for this machine.

    Raises:
        RigError: it has none; names the pins that have one.
    """
    arch = this_arch()
    able = [pin for pin in read_pins(layout) if arch in pin.wheels.get(Flavour.CPU, {})]
    if not able:
        raise RigError(
            f"no pinned release has a CPU wheel for {arch}", next_step="see `./rig pins`"
        )
    if not version:
        return able[0]
    pin = find_pin(layout, version)
    if pin not in able:
        raise RigError(
            f"vLLM {pin.version} has no CPU wheel for {arch}: nothing can run without a GPU",
            next_step=f"name one that has: {', '.join(p.version for p in able)}",
        )
    return pin


@app.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": [],
    }
)
def serve(context: typer.Context) -> None:
    """Serve a model on a private Ray cluster; what scripts/serve-*.sh call."""
    from rig.launch.command import serve_main

    raise typer.Exit(serve_main(context.args))


@app.command("bench")
def bench_command(
    python: Annotated[
        Path | None, typer.Option(help="An interpreter with a rig build, to time the launcher.")
    ] = None,
) -> None:
    """Time the tools: doctor, plan, the launcher up to the start; 1 if one is too slow."""
    from rig.bench import bench

    layout = layout_of_this_checkout()
    if python is None:
        made = sorted(layout.build.glob("engine-*-cpu/bin/python"))
        python = made[-1] if made else None
    measured = bench(python)
    for one in measured:
        out.print(str(one))
    raise typer.Exit(int(any(one.seconds > one.limit for one in measured)))


@app.command("absence")
def absence_command(
    version: Annotated[
        str | None, typer.Argument(help="A release with a CPU wheel; the newest if absent.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Patch numbers; all if absent.")] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only those that the record does not answer for.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Renew docs/absence/<version>.json.")
    ] = False,
) -> None:
    """Show that each patch's tests pass, and that one of them fails without the patch."""
    from rig.absence import absence
    from rig.absence_record import changed_patches, digests, read_record, write_record
    from rig.rehearsal.environment import engine_environment
    from rig.series.apply import apply as apply_series
    from rig.series.listing import read_mails

    layout = layout_of_this_checkout()
    pin = _pin_with_cpu(layout, version)
    tree = apply_series(layout, pin)
    now = digests(tree, [mail for _, mail in read_mails(layout, pin)])
    if changed:
        asked = [name[:4] for name in changed_patches(read_record(layout, pin.version), now)]
        only = [number for number in asked if not only or number in only]
        if not only:
            out.print(f"vLLM {pin.version}: the record answers for all {len(now)} patches")
            return
    wheel = built_wheel(layout, pin, Flavour.CPU)
    environment = engine_environment(layout, pin, wheel.path)
    verdicts = absence(layout, tree, environment.python, environment.site_packages, only)
    out.print(f"vLLM {pin.version}: {len(verdicts)} patches are missed by their tests when absent")
    if record:
        out.print(f"written: {layout.shown(write_record(layout, pin.version, now, verdicts))}")
