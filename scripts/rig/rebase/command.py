"""`rig rebase`: begin, go on after a person's answer, or throw away."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from packaging.version import Version

from rig.console import console, out
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, find_pin, read_pins
from rig.rebase import outbox
from rig.rebase.commits import (
    make_commits,
    plan_commits,
    read_commits,
    require_clean_patches,
    save_commits,
)
from rig.rebase.compare import compare
from rig.rebase.decided import (
    decisions_of,
    in_progress,
    pin_of,
    require_in_time,
    require_known,
    require_unanswered,
    still_to_edit,
)
from rig.rebase.guide import (
    CONTINUE,
    say_how_to_bring_back,
    say_how_to_resolve,
    say_what_is_gone_again,
    say_what_to_decide,
    say_what_waits,
)
from rig.rebase.passage import End
from rig.rebase.prepare import ground_in_progress, ground_of_pins
from rig.rebase.report import Report, print_report, write_report
from rig.rebase.resolve import put_there, take_answers
from rig.rebase.state import (
    RebaseState,
    alone,
    folder_of,
    forget,
    read_state,
    remove_resolution,
    tree_of,
    working_in_tree,
    write_resolution,
    write_state,
)
from rig.rebase.survey import survey
from rig.rebase.verdict import Verdict
from rig.rebase.write import prove, work_out
from rig.series.listing import read_mails
from rig.series.lock import read_lock
from rig.series.scratch import discard, scratch_folder


def begin(
    layout: Layout,
    new: str,
    old: str | None,
    *,
    dry_run: bool,
    edit: Sequence[str] = (),
    commit: bool = True,
) -> bool:
    """Carry the series to a release; says whether it is there in full.

    Args:
        layout: the checkout.
        new: the release to carry to; pinned already: the result is compared with its lock.
        old: the pin to carry from; the primary one if None.
        dry_run: report only; no file of the checkout but the report changes.
        edit: patches at which to stop although they may be clean, for a person to edit them.
        commit: commit what was written, if the checkout is a git repository.

    Raises:
        RigError: another rebase is in progress, patches/ holds uncommitted work, or there is no
            such release.
    """
    with alone(layout):
        new = new.removeprefix("v")
        state = read_state(layout)
        # Before a pin is read: a run that was stopped here may have left two primary ones.
        if state is not None and _is_written(layout) and not dry_run:
            if state.new == new and old in (None, state.old):
                require_in_time(state, edit)
                return _deliver(layout, commit=commit)
            raise in_progress(layout, state)
        source = find_pin(layout, old)
        if new == source.version:
            is_from = "it is FROM" if old else "the series stands on it already"
            raise RigError(
                f"nothing to carry to vLLM {new}: {is_from}", next_step="name another TO"
            )
        if state is not None and (state.old, state.new) != (source.version, new):
            raise in_progress(layout, state)
        require_known(layout, source, edit)
        if state is not None and not dry_run:
            asked = set(edit) - state.edit
            state.edit |= asked
            console.print(f"a rebase to {new} is in progress: going on with it")
            return _go_on(layout, state, asked, commit=commit)
        # A pin without a lock has nothing yet that a result could be compared with.
        pinned = {p.version for p in read_pins(layout) if layout.lock(p.version).exists()}
        if not dry_run and new not in pinned:
            require_clean_patches(layout)
        if state is None:
            discard(folder_of(layout))
        pin = pin_of(layout, new)
        if Version(new) < Version(source.version):
            console.print(f"{new} is older than {source.version}: a back-port, to a secondary pin")
        state = state or RebaseState(old=source.version, new=new)
        if dry_run or new in pinned:
            if edit:
                why = "this is a dry run" if dry_run else f"{new} is pinned already"
                raise RigError(
                    f"nothing is carried that could be edited: {why}",
                    next_step=f"commit the change in build/vllm-{new}, then `make refresh`",
                )
            return _look_only(layout, state, pin, source)
        state.edit |= set(edit)
        write_state(layout, state)
        return _run(layout, state, commit=commit)


def proceed(
    layout: Layout,
    *,
    accept: Sequence[str] = (),
    drop: Mapping[str, str] | None = None,
    forgotten: Sequence[str] = (),
    edit: Sequence[str] = (),
    commit: bool = True,
) -> bool:
    """Go on with the rebase in progress, with what a person decided.

    Raises:
        RigError: there is none, or the conflict in the tree is not resolved.
    """
    with alone(layout):
        state = read_state(layout)
        if state is None:
            raise RigError("no rebase is in progress", next_step="make rebase TO=<version>")
        if _is_written(layout):
            require_in_time(state, (*accept, *(drop or {}), *forgotten, *edit))
            return _deliver(layout, commit=commit)
        source = find_pin(layout, state.old)
        # What is left out already can be decided, too: it may be needed again.
        require_known(layout, source, (*accept, *(drop or {})), also=source.skip)
        require_known(layout, source, (*forgotten, *edit))
        state.accept |= set(accept)
        state.drop |= dict(drop or {})
        state.edit = (state.edit - state.drop.keys()) | set(edit)
        for number in forgotten:
            if not remove_resolution(layout, number):
                raise RigError(f"there is no resolution of {number} to forget")
        write_state(layout, state)
        return _go_on(layout, state, edit, forgotten, commit=commit)


def abort(layout: Layout) -> str:
    """Throw the rebase in progress away; patches/ is as it was.

    Raises:
        RigError: there is none, or its result is being written.
    """
    with alone(layout):
        if _is_written(layout):
            raise RigError(
                "the result is being written to patches/",
                next_step=f"{CONTINUE} finishes that; undo it with git afterwards",
            )
        if not folder_of(layout).exists():
            raise RigError("no rebase is in progress", next_step="make rebase TO=<version>")
        forget(layout)
        return "the rebase is thrown away; patches/ is as it was"


def _is_written(layout: Layout) -> bool:
    """Whether the result is proven, and on its way to patches/."""
    return outbox.is_filled(folder_of(layout) / "outbox")


def _go_on(
    layout: Layout,
    state: RebaseState,
    edit: Collection[str],
    forgotten: Collection[str] = (),
    *,
    commit: bool,
) -> bool:
    number = state.stopped_at
    if number is not None and tree_of(layout).exists():
        mails = {mail.number: mail for _, mail in read_mails(layout, find_pin(layout, state.old))}
        found = set()
        ignored = {*state.drop, *forgotten}
        for answer in take_answers(Git(tree_of(layout)), mails, number, ignored):
            write_resolution(layout, answer)
            found.add(answer.number)
        if number not in found and number not in state.drop:
            console.print(f"{number} has no answer: it is put there again")
    require_unanswered(layout, state, edit)
    state.stopped_at = None
    write_state(layout, state)
    require_clean_patches(layout)
    return _run(layout, state, commit=commit)


def _run(layout: Layout, state: RebaseState, *, commit: bool) -> bool:
    old, new = find_pin(layout, state.old), pin_of(layout, state.new)
    decisions = decisions_of(layout, state, new)
    with working_in_tree(layout):
        ground = ground_in_progress(layout, old, new)
        passages, report = survey(ground, f"vLLM {old.version}", decisions)
        _say(layout, report)
        edits = still_to_edit(layout, state, passages, decisions)
        stops = [p.number for p in passages if p.end is End.CONFLICT or p.number in edits]
        if stops:
            put_there(ground, stops[0], decisions)
    if stops:
        state.stopped_at = stops[0]
        write_state(layout, state)
        say_how_to_resolve(layout, stops[0], report)
        return False
    unseen = [one for one in report.needed_again if one.number not in state.accept]
    if report.waiting or unseen:
        say_what_to_decide(report.waiting)
        say_what_is_gone_again(unseen)
        return False
    dropped = dict(state.drop) | {
        j.number: f"merged upstream: {j.evidence}"
        for j in report.judged
        if j.verdict is Verdict.MERGED
    }
    scratch = folder_of(layout) / "scratch"
    discard(scratch)
    scratch.mkdir()
    used = {p.number for p in passages if p.end is End.RESOLVED}
    texts = {n: mail for n, mail in decisions.resolutions.items() if n in used}
    again = {one.number: one.found for one in report.needed_again}
    outcome = work_out(layout, old, new, ground.git, dropped, texts, again, scratch)
    prove(layout, outcome.all(), scratch)
    shutil.rmtree(scratch)
    plan = plan_commits(layout, old.version, new.version, outcome, dropped)
    save_commits(folder_of(layout), plan)
    outbox.fill(folder_of(layout) / "outbox", layout.root, outcome.all())
    done = _deliver(layout, commit=commit)
    say_how_to_bring_back(new.version, report.needed_again)
    return done


def _deliver(layout: Layout, *, commit: bool) -> bool:
    folder = folder_of(layout)
    for line in outbox.deliver(folder / "outbox", layout.root):
        console.print(line, markup=False)
    plan = read_commits(folder)
    if commit:
        for line in make_commits(layout.root, plan):
            out.print(line, markup=False)
    shutil.rmtree(layout.build / "new-pins", ignore_errors=True)
    forget(layout)
    out.print("the series stands on the new release; `make apply` and `make test` come next")
    return True


def _look_only(layout: Layout, state: RebaseState, pin: Pin, old: Pin) -> bool:
    """All of a survey, in a repository of its own that goes afterwards."""
    with scratch_folder(layout, "rebase-look") as scratch:
        pinned = layout.lock(pin.version).exists()
        expected = read_lock(layout, pin.version).pristine if pinned else None
        ground = ground_of_pins(layout, old, pin, scratch / "tree", expected)
        decisions = decisions_of(layout, state, pin)
        _, report = survey(ground, f"vLLM {old.version}", decisions)
        if pinned:
            same, said = compare(layout, pin, ground.git)
            report = replace(report, compared=said)
        _say(layout, report)
        waits = [f"{one.number} ({one.verdict})" for one in report.waiting]
        waits += [f"{one.number} (left out)" for one in report.needed_again]
        if waits:
            say_what_waits(pin.version, waits, pinned=pinned)
        # What a pin's lock gives was decided when it was made.
        return same if pinned else not waits


def _say(layout: Layout, report: Report) -> None:
    print_report(report)
    for path in write_report(report, layout.build / "rebase-report"):
        console.print(f"written: {layout.shown(path)}", markup=False)
