"""What persons decided in a rebase, read from its state, and checked against the series."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rig.console import console
from rig.errors import RigError
from rig.layout import Layout
from rig.pin_add import add_pin
from rig.pins import Pin, find_pin, read_pin
from rig.rebase.compare import own_texts
from rig.rebase.guide import CONTINUE
from rig.rebase.passage import End, Passage
from rig.rebase.state import RebaseState, folder_of, read_resolutions, write_state
from rig.rebase.survey import Decisions
from rig.series.listing import patches_for


def require_known(
    layout: Layout, pin: Pin, numbers: Sequence[str], also: Collection[str] = ()
) -> None:
    """Refuse numbers that a pin has no patch of, and that are not among `also`.

    Raises:
        RigError: see above.
    """
    known = {p.number for p in patches_for(layout, pin)} | set(also)
    for number in numbers:
        if number not in known:
            raise RigError(
                f"the series has no patch {number}",
                where=f"vLLM {pin.version}",
                next_step=f"one of {', '.join(sorted(known))}",
            )


def in_progress(layout: Layout, state: RebaseState) -> RigError:
    """What to say of a rebase to another release than the one that is asked for."""
    return RigError(
        f"a rebase from {state.old} to {state.new} is in progress",
        where=layout.shown(folder_of(layout)),
        next_step=f"finish it with {CONTINUE}, or throw it away with `make rebase-abort`",
    )


def require_in_time(state: RebaseState, decided: Collection[str]) -> None:
    """Refuse to pass over what a person decides while the result is being written.

    Args:
        decided: the patches of it; those that the state has already are no news.

    Raises:
        RigError: see above.
    """
    late = sorted({*decided} - (state.accept | state.drop.keys() | state.edit))
    if late:
        raise RigError(
            f"it is too late to decide about {', '.join(late)}: the result is being written",
            next_step=f"{CONTINUE} finishes that; change the patch afterwards",
        )


def require_unanswered(layout: Layout, state: RebaseState, edit: Collection[str]) -> None:
    """Refuse to go past a patch at which a person now wants to stop.

    Args:
        edit: the patches to stop at.

    Raises:
        RigError: one has a text already, with which it would be passed.
    """
    for number in sorted({*edit} & read_resolutions(layout).keys() - {state.stopped_at}):
        raise RigError(
            f"{number} is answered already: it would not be stopped at",
            next_step="to make it anew: `./rig rebase --continue "
            f"--forget {number} --edit {number}`",
        )


def decisions_of(layout: Layout, state: RebaseState, pin: Pin) -> Decisions:
    """A person's texts; for a release that is pinned, those that it has already."""
    own = own_texts(layout, pin)
    leave_out = {**pin.skip, **state.drop}
    accept = state.accept | own.keys()  # looked at when they were made
    return Decisions(
        own | read_resolutions(layout),
        leave_out,
        frozenset(accept),
        frozenset(state.drop),
        frozenset(state.edit),
    )


def still_to_edit(
    layout: Layout, state: RebaseState, passages: Sequence[Passage], decisions: Decisions
) -> set[str]:
    """The patches at which to stop for an edit.

    Raises:
        RigError: nothing of one is left to be edited; it is no longer asked for then.
    """
    carried = {p.number for p in passages if p.end is not End.EMPTY}
    for number in sorted(state.edit - carried):
        state.edit.discard(number)
        write_state(layout, state)
        raise RigError(
            f"{number} cannot be edited: nothing of it is carried to vLLM {state.new}",
            where=decisions.leave_out.get(number, "upstream has it: see the report above"),
            next_step=f"{CONTINUE} goes on without it, `make rebase-abort` throws all away",
        )
    return state.edit - decisions.resolutions.keys()


def pin_of(layout: Layout, version: str) -> Pin:
    """The pin of a release: the one that is there, or a new one from the index, kept aside."""
    if (layout.pins / f"{version}.toml").exists():
        return find_pin(layout, version)
    aside = replace(layout, root=layout.build / "new-pins")
    if not (aside.pins / f"{version}.toml").exists():
        aside.pins.mkdir(parents=True, exist_ok=True)
        for line in add_pin(aside, version):
            console.print(f"later: {line}", markup=False)
    return read_pin(aside.pins / f"{version}.toml")
