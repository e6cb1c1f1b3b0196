"""What a person can do next, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rig.console import out
from rig.layout import Layout
from rig.rebase.report import Report
from rig.rebase.state import tree_of
from rig.rebase.verdict import Judged, Verdict

CONTINUE = "`make rebase-continue`"


def say_how_to_resolve(layout: Layout, number: str, report: Report) -> None:
    """Where a conflict lies, and the ways to answer it."""
    one = next(j for j in report.judged if j.number == number)
    out.print(f"\n{one.name} conflicts. Its files, with markers, are in:", markup=False)
    for file in one.conflicts:
        out.print(f"  {layout.shown(tree_of(layout))}/{file.path}", markup=False)
    out.print(
        f"Edit them until they say what the patch means, then {CONTINUE}. If the patch is not "
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
