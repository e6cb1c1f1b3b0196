"""The committed series, applied on every pinned release."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rig.git import Git
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Pin, read_pins
from rig.series.apply import apply
from rig.series.listing import read_mails
from rig.series.lock import read_lock

pytestmark = pytest.mark.network

PINS = read_pins(layout_of_this_checkout())


@pytest.fixture(params=PINS, ids=[p.version for p in PINS])
def pin(request: pytest.FixtureRequest) -> Pin:
    found = request.param
    assert isinstance(found, Pin)
    return found


def test_every_pin_gives_the_locked_tree_with_one_commit_a_patch(
    layout: Layout, pin: Pin, record_property: Callable[[str, object], None]
) -> None:
    apply(layout, pin)  # the sdist may have to be fetched: not part of the time
    tree = layout.tree(pin.version)
    git = Git(tree)
    (tree / ".git" / "rig-stamp.json").write_text("{}")  # an unknown tree: made anew when asked
    started = time.monotonic()
    applied = apply(layout, pin, discard=True)
    seconds = time.monotonic() - started
    record_property("seconds", round(seconds, 1))
    lock = read_lock(layout, pin.version)
    mails = [m for _, m in read_mails(layout, pin)]

    assert git.line("write-tree") == applied.final_tree == lock.final
    assert git.lines("log", "--reverse", "--format=%s", "refs/rig/pristine..HEAD") == [
        m.subject for m in mails
    ]
    assert mails, "the series is empty"
    assert git.run("status", "--porcelain", "--ignored").text == ""
    # Ten seconds on an idle machine with two cores; a loaded one gets three times that.
    assert seconds < 30


def test_a_second_apply_finds_the_tree_and_does_nothing(layout: Layout, pin: Pin) -> None:
    first = apply(layout, pin)
    before = (layout.tree(pin.version) / ".git" / "rig-stamp.json").stat().st_mtime_ns
    second = apply(layout, pin)
    assert second.was_there
    assert second.final_tree == first.final_tree
    assert (layout.tree(pin.version) / ".git" / "rig-stamp.json").stat().st_mtime_ns == before
