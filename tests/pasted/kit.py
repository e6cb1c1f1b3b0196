"""What the tests of pasted text share."""

from __future__ import annotations

from pathlib import Path

from rig.box.facts import Box, Card, Pair
from rig.box.pasted import box_of_text

TEXTS = Path(__file__).parent / "texts"
MIB, GIB = 2**20, 2**30


def text_of(*names: str) -> str:
    """Some of the texts, one after the other."""
    return "\n".join((TEXTS / f"{name}.txt").read_text() for name in names)


def box_of(*names: str) -> Box:
    """The box that they show."""
    return box_of_text(text_of(*names), "a paste")


def cards_of(box: Box) -> tuple[Card, ...]:
    """Its cards, which it must know."""
    assert box.cards is not None
    return box.cards


def pairs_of(box: Box) -> dict[tuple[int, int], Pair]:
    """Its pairs, which it must know."""
    assert box.pairs is not None
    return {(pair.first, pair.second): pair for pair in box.pairs}


def levels_of(box: Box) -> dict[tuple[int, int], str | None]:
    """How each two cards are joined."""
    return {key: pair.level for key, pair in pairs_of(box).items()}
