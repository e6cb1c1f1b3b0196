"""The command that shows by value whether cards can read each other's memory."""

from __future__ import annotations

from typing import Annotated

import typer

from rig.cli import app


@app.command("p2p")
def p2p_command(
    python: Annotated[
        str | None, typer.Option(help="The engine's interpreter; as `serve` finds it if absent.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and fewer sets of cards.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="nccl-no-p2p, copy, copy-both-ways, nccl-p2p, custom or pcie-ipc; repeatable."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds of silence that count as a hang.")
    ] = 60.0,
    force: Annotated[
        bool, typer.Option("--force", help="Also when something else uses the cards.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The whole verdict, on one line.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print what is kept for this box; run nothing.")
    ] = False,
    rehearse: Annotated[
        int | None, typer.Option(help="Run it on so many CPU ranks; nothing is kept.")
    ] = None,
    fault: Annotated[
        str, typer.Option(hidden=True, help="A fault to inject into a rehearsal.")
    ] = "",
) -> None:
    """Copy and all-reduce between all cards and check every value; the only thing that turns P2P
    on. Exit status: 0 good, 1 something is wrong, 2 the check could not be made."""
    from rig.box.read import read_box
    from rig.console import console
    from rig.errors import RigError
    from rig.launch.engine_environment import choose_python
    from rig.launch.signals import StopSignal, stop_signals
    from rig.p2p import command

    if fault and rehearse is None:
        raise typer.BadParameter("faults are for rehearsals", param_hint="--fault")
    if show and rehearse is not None:
        raise typer.BadParameter("a rehearsal keeps nothing to show", param_hint="--show")
    try:
        ways = command.ways_named(only or ())
        wanted = command.Wanted(choose_python(python), quick, ways, timeout, force, json, fault)
    except RigError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from error
    try:
        with stop_signals():
            if rehearse is not None:
                status = command.rehearse(wanted, rehearse)
            elif show:
                status = command.show(wanted, read_box)
            else:
                status = command.check(wanted, read_box)
    except RigError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from error
    except StopSignal as stop:
        console.print(f"stopped by {stop}: nothing is left behind", markup=False)
        raise typer.Exit(128 + stop.number) from stop
    raise typer.Exit(status)
