"""What a check says, and the shape of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rig.box.facts import Box, Card
from rig.box.rig_file import Rig
from rig.doctor.context import Context

State = Literal["fail", "warn", "unknown", "pass"]
STATES: tuple[State, ...] = ("fail", "warn", "unknown", "pass")  # worst first
TOPICS = ("cards", "driver", "links", "peer-to-peer", "memory", "power", "host")
Topic = Literal["cards", "driver", "links", "peer-to-peer", "memory", "power", "host"]


class Finding(BaseModel):
    """The outcome of one check.

    Args:
        check: the check's name, as `rig doctor --list` prints it.
        state: "unknown" when a fact that it needs was not known: never a pass.
        seen: what was seen, in words with units.
        why: one sentence on why it matters.
        next_step: what to type or do; "" after a pass.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: str
    topic: Topic
    state: State
    seen: str
    why: str
    next_step: str = ""


@dataclass(frozen=True)
class Said:
    """What a check's function returns: the rest of the finding stands in the table."""

    state: State
    seen: str
    step: str = ""


Judge = Callable[[Box, Rig | None, Context], Said]


@dataclass(frozen=True)
class Check:
    """One row of the table of checks.

    Args:
        judge: the pure function.
        asks: what it looks at, for the table in the docs.
        why: one sentence on why it matters.
        look: how a person sees the same fact; the next step when it is unknown.
        states: the states that it can give.
        needs_cards: it judges cards or their driver, so a rehearsal is not asked.
    """

    name: str
    topic: Topic
    judge: Judge
    asks: str
    why: str
    look: str
    states: tuple[State, ...]
    needs_cards: bool = True

    def run(self, box: Box, rig: Rig | None, context: Context) -> Finding:
        """Judge a box; pure."""
        said = self.judge(box, rig, context)
        step = said.step or ("" if said.state == "pass" else self.look)
        return Finding(
            check=self.name,
            topic=self.topic,
            state=said.state,
            seen=said.seen,
            why=self.why,
            next_step="" if said.state == "pass" else step,
        )


def used_cards(box: Box, context: Context) -> tuple[Card, ...] | None:
    """The cards that will serve: those that the context names, else all; None: nobody looked."""
    if box.cards is None or context.cards is None:
        return box.cards
    return tuple(card for card in box.cards if card.index in context.cards)


def nothing_to_judge(cards: tuple[Card, ...] | None) -> Said | None:
    """The answer of a check of cards when there is no card."""
    if cards is None:
        return Said("unknown", NO_DRIVER)
    return None if cards else Said("unknown", NO_CARD)


NO_DRIVER = "nothing is known of cards"
NO_CARD = "there is no card to look at"
LABELS = "{labels}"  # in a card's next step: the numbers of the cards that it is for
ONE_CARD = "one card: nothing goes from card to card"


def each_card(box: Box, context: Context, judge: Callable[[Card], Said]) -> Said:
    """Judge every card that will serve; the worst one decides."""
    cards = used_cards(box, context)
    if not cards:
        return nothing_to_judge(cards) or Said("unknown", NO_CARD)
    return combine((f"{card.index}", judge(card)) for card in cards)


def combine(parts: Iterable[tuple[str, Said]], noun: str = "card") -> Said:
    """One answer out of several: the worst state, all texts, worst first, equal ones merged.

    An unknown part ranks above a pass, so that what nobody saw never passes among others. The
    next step is that of all parts in the worst state; in it, LABELS becomes those that it is of.
    """
    merged: dict[tuple[State, str], list[str]] = {}
    steps: dict[tuple[State, str], list[str]] = {}
    for label, said in parts:
        merged.setdefault((said.state, said.seen), []).append(label)
        steps.setdefault((said.state, said.step), []).append(label)
    ordered = sorted(merged, key=lambda key: STATES.index(key[0]))
    texts = []
    for state, seen in ordered:
        labels = merged[state, seen]
        texts.append(f"{noun}{'s' if len(labels) > 1 else ''} {', '.join(labels)}: {seen}")
    state = ordered[0][0]
    told = [
        step.replace(LABELS, ",".join(labels))
        for (of, step), labels in steps.items()
        if of == state and step
    ]
    return Said(state, "; ".join(texts), "; ".join(told))


def gib(size: int) -> str:
    """Bytes in words: GiB with one decimal, MiB below one GiB."""
    if abs(size) < 1 << 30:
        return f"{size / (1 << 20):.0f} MiB"
    return f"{size / (1 << 30):.1f} GiB"
