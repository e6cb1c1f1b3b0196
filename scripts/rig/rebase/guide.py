"""What a person can do next, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rig.console import out
from rig.layout import Layout
from rig.rebase.left_out import NeededAgain
from rig.rebase.report import Report
from rig.rebase.state import tree_of
from rig.rebase.verdict import Judged, Verdict

CONTINUE = "`make rebase-continue`"


def say_how_to_resolve(layout: Layout, number: str, report: Report) -> None:
    """Where a conflict, or a patch to edit, lies, and the ways to answer it."""
    one = next(j for j in report.judged if j.number == number)
    if one.conflicts:
        out.print(f"\n{one.name} conflicts. Its files, with markers, are in:", markup=False)
        for file in one.conflicts:
            out.print(f"  {layout.shown(tree_of(layout))}/{file.path}", markup=False)
    else:
        place = layout.shown(tree_of(layout))
        out.print(f"\n{one.name} is the last commit in {place}, to be edited.", markup=False)
    out.print(
        f"Edit the files until they say what the patch means, then {CONTINUE}. If the patch is not "
        f"needed any more: `./rig rebase --continue --drop {number} --why 'a reason'`. "
        "`make rebase-abort` throws all of it away."
    )


def say_what_to_decide(waiting: Sequence[Judged]) -> None:
    """How to decide each patch that is no conflict, but waits for a person."""
    for one in waiting:
        if one.verdict is Verdict.PROBE_FAILED:
            out.print(
                f"{one.number} merges, but what it relies on changed (above). Look at it; then "
                f"`./rig rebase --continue --accept {one.number}`, or change the patch first"
            )
        elif one.verdict is Verdict.DEPENDS:
            out.print(
                f"{one.number} requires a patch that goes (above). If it works without it: "
                f"`./rig rebase --continue --accept {one.number}`; if not, drop it as well: "
                f"`--drop {one.number} --why 'a reason'`"
            )
        else:
            out.print(
                f"{one.number}: {one.verdict}: decide with `./rig rebase --continue --drop "
                f"{one.number} --why 'a reason'`, or keep it by a change of the patch"
            )


def say_what_waits(version: str, waits: Sequence[str], *, pinned: bool) -> None:
    """What a run that only looks found for a person."""
    said = ", ".join(waits)
    if pinned:
        out.print(f"vLLM {version} is pinned and carries these as they are: {said}", markup=False)
    else:
        out.print(
            f"a rebase to {version} would wait for you: {said}. "
            f"`make rebase TO={version}` begins it",
            markup=False,
        )


def say_what_is_gone_again(unseen: Sequence[NeededAgain]) -> None:
    """How to decide each patch that is left out although the new release lacks its lines."""
    for one in unseen:
        out.print(
            f"{one.number} was left out, and the new release lacks its lines (above). To bring it "
            f"back after this rebase: `./rig rebase --continue --accept {one.number}`, which says "
            "how when it is done; if it is still not needed: `./rig rebase --continue --drop "
            f"{one.number} --why 'a reason'`"
        )


def say_how_to_bring_back(version: str, needed_again: Sequence[NeededAgain]) -> None:
    """The commands that bring such a patch to the new release, by git's three-way merge."""
    for one in needed_again:
        holder = one.carried_by
        out.print(
            f"{one.number} is not in vLLM {version}, which lacks its lines. To bring it back:\n"
            f"    ./rig apply {holder} && ./rig apply {version}\n"
            f"    cd build/vllm-{version}\n"
            f"    git fetch ../vllm-{holder} HEAD\n"
            f"    git cherry-pick 'FETCH_HEAD^{{/Rig-Number: {one.number}}}'\n"
            f"  then take {one.number} out of [skip] in patches/pins/{version}.toml, and "
            "`make refresh`",
            markup=False,
        )
