"""The newest pin on which a patch still applies by itself, with what it requires."""

from __future__ import annotations

from dataclasses import dataclass

from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Pin, primary_pin, read_pins
from rig.rebase.passage import carry_over
from rig.rebase.prepare import ground_of_pins
from rig.series.listing import read_mails
from rig.series.lock import read_lock
from rig.series.scratch import scratch_folder


@dataclass(frozen=True)
class Tried:
    """One pin: whether the patch is there in full, and why not."""

    version: str
    applies: bool
    said: str


def bisect_pin(layout: Layout, number: str) -> list[Tried]:
    """Carry one patch, and those it requires, to each pin, newest first, until it applies.

    The primary pin carries every patch of the series, so the text that is tried is its own; a
    patch that the primary skips is tried with the text of the newest pin that has it.

    Raises:
        RigError: no pin has a patch of this number.
    """
    pins = read_pins(layout)
    source = _newest_with(layout, pins, number)
    mails = {m.number: m for _, m in read_mails(layout, source)}
    needed = {number}
    for mail in reversed(list(mails.values())):
        if mail.number in needed:
            needed |= set(mail.requires)
    leave_out = set(mails) - needed
    tried = []
    for pin in pins:
        tried.append(_try(layout, source, pin, number, needed, leave_out))
        if tried[-1].applies:
            break
    return tried


def _newest_with(layout: Layout, pins: list[Pin], number: str) -> Pin:
    for pin in pins:
        if any(mail.number == number for _, mail in read_mails(layout, pin)):
            return pin
    known = sorted({m.number for _, m in read_mails(layout, primary_pin(layout))})
    raise RigError(
        f"no pin has a patch {number}", where="patches/series", next_step=", ".join(known)
    )


def _try(
    layout: Layout, source: Pin, pin: Pin, number: str, needed: set[str], leave_out: set[str]
) -> Tried:
    with scratch_folder(layout, "bisect-pin") as scratch:
        expected = read_lock(layout, pin.version).pristine
        ground = ground_of_pins(layout, source, pin, scratch / "tree", expected)
        passages = carry_over(ground.git, ground.onto, ground.commits, {}, leave_out=leave_out)
    for passage in passages:
        if passage.result is None:
            which = "it" if passage.number == number else passage.number
            files = ", ".join(f.path for f in passage.conflicts)
            said = f"{which} conflicts in {files}" if files else f"{which} changes nothing there"
            return Tried(pin.version, False, said)
    return Tried(pin.version, True, "applies" + (f", with {_others(needed, number)}"))


def _others(needed: set[str], number: str) -> str:
    others = sorted(needed - {number})
    return f"what it requires: {', '.join(others)}" if others else "nothing else"
