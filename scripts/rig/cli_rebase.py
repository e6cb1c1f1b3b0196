"""The commands that carry the series to other trees: rebase, forecast, probes, bisect-pin."""

from __future__ import annotations

import json as to_json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rig.cli import app
from rig.console import out
from rig.errors import RigError
from rig.layout import layout_of_this_checkout
from rig.pins import find_pin

Numbers = Annotated[list[str] | None, typer.Option()]


@app.command()
def rebase(
    to: Annotated[str | None, typer.Argument(help="The release to carry the series to.")] = None,
    old: Annotated[
        str | None, typer.Option("--from", help="The pin to carry from; the primary if absent.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Verdicts only.")] = False,
    go_on: Annotated[
        bool, typer.Option("--continue", help="After a conflict is resolved.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Throw the rebase away.")] = False,
    accept: Annotated[
        list[str] | None, typer.Option(help="A patch whose failed probe you looked at.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A patch that is not needed.")] = None,
    why: Annotated[str, typer.Option(help="The reason for --drop; it is kept in the pin.")] = "",
    forget: Annotated[
        list[str] | None, typer.Option(help="A patch whose resolution is to be made anew.")
    ] = None,
    edit: Annotated[
        list[str] | None, typer.Option(help="A patch to stop at, conflict or not, to edit it.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit/--no-commit", help="Commit the result in this checkout.")
    ] = True,
) -> None:
    """Carry the series to another vLLM release by `git rebase`, with a verdict for each patch."""
    from rig.rebase import command

    layout = layout_of_this_checkout()
    if go_on + abort + (to is not None) != 1:
        raise RigError(
            "name a release to carry to, or --continue, or --abort",
            next_step="make rebase TO=0.34.0 EDIT=0401; in the midst of one: "
            "make rebase-continue EDIT=0401"
            if edit
            else "make rebase TO=0.34.0",
        )
    if (old or dry_run) and to is None:
        raise RigError("--from and --dry-run go with a release to carry to")
    if edit and abort:
        raise RigError("--edit goes with a release to carry to, or with --continue")
    if abort:
        out.print(command.abort(layout))
        return
    if (accept or drop or forget) and not go_on:
        raise RigError("--accept, --drop and --forget go with --continue")
    if why and not drop:
        raise RigError("--why goes with --drop")
    if drop and len(why.strip()) < 10:
        raise RigError(
            "a drop needs a reason that people will understand later",
            next_step="--why 'merged upstream as pull request 12345'",
        )
    if go_on:
        done = command.proceed(
            layout,
            accept=accept or (),
            drop={number: why.strip() for number in drop or ()},
            forgotten=forget or (),
            edit=edit or (),
            commit=commit,
        )
    else:
        assert to is not None
        done = command.begin(layout, to, old, dry_run=dry_run, edit=edit or (), commit=commit)
    raise typer.Exit(0 if done else 1)


@app.command()
def probes(
    pin: Annotated[
        str | None, typer.Option(help="A pinned release; the primary one if absent.")
    ] = None,
    tree: Annotated[Path | None, typer.Option(help="Any vLLM tree instead.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Look up what each patch relies on upstream; exits with 1 if anything is gone or changed."""
    from rig.probes.command import look_in

    sightings = look_in(layout_of_this_checkout(), pin, tree)
    bad = [s for s in sightings if s.state != "holds"]
    if json:
        out.print_json(to_json.dumps([asdict(s) for s in sightings]))
    else:
        for one in bad:
            out.print(f"{one.patch[:4]} {one.state}: {one.probe}\n     {one.said}")
        out.print(f"{len(sightings)} probes of {len({s.patch for s in sightings})} patches: "
                  f"{len(sightings) - len(bad)} hold, {len(bad)} do not")  # fmt: skip
    raise typer.Exit(1 if bad else 0)


@app.command()
def forecast(
    source: Annotated[str, typer.Argument(help="A folder, an sdist, or a git address[@ref].")] = "",
    pin: Annotated[str | None, typer.Option(help="Whose texts; the primary's if absent.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report there as JSON.")] = None,
) -> None:
    """Try the series on an unreleased tree: verdicts and a list of risks. Never blocks."""
    from rig.rebase.forecast import forecast as run
    from rig.rebase.forecast import risks

    if not source:
        raise RigError(
            "no tree is named",
            next_step="make forecast SOURCE=TREE: a folder, an sdist, or a git address[@ref]",
        )
    layout = layout_of_this_checkout()
    report = run(layout, find_pin(layout, pin), source)
    found = risks(report)
    for at, one in enumerate(found, 1):
        out.print(f"risk {at}: {one.number} {one.verdict}", markup=False)
    for again in report.needed_again:
        out.print(
            f"risk: {again.number} is left out, and its lines are gone upstream", markup=False
        )
    if not found and not report.needed_again:
        out.print("no risk seen")
    if json is not None:
        json.write_bytes((layout.build / "forecast-report" / "report.json").read_bytes())


@app.command("bisect-pin")
def bisect_pin_command(
    patch: Annotated[str, typer.Argument(help="A patch number, such as 0401.")],
) -> None:
    """Find the newest pin on which a patch, with what it requires, applies by itself."""
    from rig.rebase.bisect import bisect_pin

    tried = bisect_pin(layout_of_this_checkout(), patch[:4])
    for one in tried:
        out.print(f"vLLM {one.version}: {one.said}", markup=False)
    if not tried[-1].applies:
        raise RigError(f"{patch[:4]} applies on no pin")
