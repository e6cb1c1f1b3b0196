"""The command that looks a box over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rig.cli import app
from rig.console import console
from rig.errors import RigError
from rig.layout import layout_of_this_checkout

if TYPE_CHECKING:
    from rig.box.facts import Box
    from rig.box.rig_file import Rig

WRONG_USAGE = 2


@app.command("doctor")
def doctor_command(
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    rig: Annotated[
        str | None, typer.Option(help="Judge against a rig file: a name, a path, or auto.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--from", help="Judge what another box printed: a file, or - for a paste."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(help="Read an engine's own words instead: its log, or http://HOST:PORT."),
    ] = None,
    cards: Annotated[
        int | None, typer.Option(min=0, help="How many cards are wanted; 0 for a rehearsal.")
    ] = None,
    pinned_gib: Annotated[
        float | None, typer.Option(min=0, help="GiB of host memory to page-lock: see `./rig plan`.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="The engine's interpreter; as `serve` chooses it if absent.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Print the table of checks and do nothing else.")
    ] = False,
) -> None:
    """Look the box over: what would keep it from serving, why, and what to do about it."""
    try:
        if listing:
            from rig.doctor.show import say
            from rig.doctor.table import markdown

            say([markdown()])
            return
        if text is not None and after is not None:
            raise RigError("--from and --after are two questions", next_step="ask one at a time")
        if after is not None:
            status = _after(after, json)
        else:
            status = _box(rig, text, cards, pinned_gib, python, json)
    except RigError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(WRONG_USAGE) from None
    raise typer.Exit(status)


def _after(where: str, json: bool) -> int:
    from rig.doctor.engine_says import json_after, lines_after, read_after, status_after
    from rig.doctor.show import say

    facts = read_after(where)
    say([json_after(facts)] if json else lines_after(facts))
    return status_after(facts)


def _box(
    rig_name: str | None,
    text: str | None,
    cards: int | None,
    pinned_gib: float | None,
    python: str | None,
    json: bool,
) -> int:
    from rig.doctor.gather import gather, gather_for_text
    from rig.doctor.run import examine, exit_status
    from rig.doctor.show import as_json, lines, say

    layout = layout_of_this_checkout()
    pinned = None if pinned_gib is None else int(pinned_gib * (1 << 30))
    if text is None:
        from rig.box.kernel_log import with_kernel_log
        from rig.box.read import read_box

        box = with_kernel_log(read_box())
        rig = _rig(rig_name, box)
        context = gather(
            layout,
            box,
            rig,
            python=python,
            cards_wanted=cards,
            pinned_bytes=pinned,
        )
    else:
        box = _pasted(text)
        rig = _rig(rig_name, box)
        context = gather_for_text(layout).model_copy(
            update={"cards_wanted": cards, "pinned_bytes": pinned}
        )
    if context.cards_wanted is None and rig is None and rig_name is not None:
        # `--rig auto` on a box that shows no card: cards were expected, how many nobody knows.
        context = context.model_copy(update={"cards_wanted": 1})
    findings = examine(box, rig, context)
    say([as_json(box, findings)] if json else lines(box, findings))
    return exit_status(findings)


def _rig(name: str | None, box: Box) -> Rig | None:
    from rig.box.rigs import AUTO, find_rig

    if name is None or (name == AUTO and not box.cards):
        return None
    return find_rig(name, box=box)


def _pasted(text: str) -> Box:
    from rig.box.pasted import box_of_text

    if text == "-":
        return box_of_text(sys.stdin.buffer.read().decode(errors="replace"), "pasted text")
    try:
        return box_of_text(Path(text).read_bytes().decode(errors="replace"), text)
    except OSError as error:
        raise RigError(
            f"the text cannot be read: {error.strerror}",
            where=text,
            next_step="give a file that holds what the other box printed, or - and paste it",
        ) from error
