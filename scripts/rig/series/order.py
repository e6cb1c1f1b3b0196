"""Put commits into the order of their numbers, wherever in the line a person made them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin
from rig.series.carry import Step, carry
from rig.series.export import Exported, export_commits
from rig.series.pristine import make_pristine


def in_order(
    layout: Layout, pin: Pin, exported: Sequence[Exported], scratch: Path
) -> list[Exported]:
    """The commits of a pin's tree, by ascending number.

    A new commit lands on top of the line, and its number is mostly not the highest. So the line
    is made anew in a scratch repository, which must give the same files in the end.

    Raises:
        RigError: a number is used twice, or commits do not fit in the order of their numbers.
    """
    numbers = [e.mail.number for e in exported]
    for before, after in pairwise(sorted(exported, key=lambda e: e.mail.number)):
        if before.mail.number == after.mail.number:
            raise RigError(
                f"number {after.mail.number} is used twice: {before.name} and {after.name}",
                where=layout.shown(layout.tree(pin.version)),
                next_step="change the Rig-Number trailer of one, or make them one commit "
                "(`git rebase -i refs/rig/pristine`)",
            )
    if numbers == sorted(numbers):
        return list(exported)
    tree = layout.tree(pin.version)
    by_hand = (
        "put them into the order of their numbers by hand (`git rebase -i refs/rig/pristine`), "
        "or choose another number"
    )
    git = make_pristine(layout, pin, scratch / f"order-{pin.version}", None)
    steps = [Step(e.commit) for e in sorted(exported, key=lambda e: e.mail.number)]
    try:
        carry(git, tree, steps)
    except RigError as error:
        raise RigError(
            "the commits are not in the order of their numbers, and do not fit in that order",
            where=layout.shown(tree),
            detail=error.detail or error.what,
            next_step=by_hand,
        ) from error
    if git.tree_id() != Git(tree).tree_id():
        raise RigError(
            "the commits give other files in the order of their numbers",
            where=layout.shown(tree),
            next_step=by_hand,
        )
    console.print(f"vLLM {pin.version}: commits put into the order of their numbers")
    ordered = export_commits(git.folder)
    # The rest of a refresh looks for the commits in the tree.
    Git(tree).run("fetch", "--quiet", "--no-tags", git.folder, "HEAD")
    return ordered
