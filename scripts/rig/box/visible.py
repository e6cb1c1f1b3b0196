"""Which cards a value of CUDA_VISIBLE_DEVICES selects, by CUDA's own rules."""

from __future__ import annotations

from rig.box.facts import Box, Card
from rig.errors import RigError

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_cards(box: Box, value: str | None) -> tuple[Card, ...]:
    """The cards of a box in the order in which CUDA would number them.

    Indices count in the order of the PCI addresses, which is CUDA's under
    CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Args:
        value: the variable's value: None (not set) is all cards, "" is none; else indices, or
            beginnings of UUIDs ("GPU-1a2b"), separated by commas. -1 ends the list, as in CUDA.

    Raises:
        RigError: a MIG instance is named, or a card that the box does not have or that is named
            twice. CUDA would silently show fewer cards, or none.
    """
    cards = box.cards or ()
    if value is None:
        return cards
    if not value.strip():
        return ()
    chosen: list[Card] = []
    for word in (part.strip() for part in value.split(",")):
        if word.startswith("-"):
            break
        card = _one(cards, word, value)
        if card in chosen:
            raise _refused(value, f"it names card {card.index} twice: CUDA would then show none")
        chosen.append(card)
    return tuple(chosen)


def _one(cards: tuple[Card, ...], word: str, value: str) -> Card:
    if word.upper().startswith("MIG-"):
        raise _refused(value, f"{word} is a MIG instance: it has no P2P and no NCCL between ranks")
    if word.isascii() and word.isdigit():
        if int(word) < len(cards):
            return cards[int(word)]
        raise _refused(value, f"there is no card {word}: this box has {_count(cards)}")
    found = [card for card in cards if (card.uuid or "").lower().startswith(word.lower())]
    if not word or not word.upper().startswith("GPU-") or not found:
        raise _refused(value, f"{word or 'an empty entry'} is neither an index nor a card's UUID")
    if len(found) > 1:
        raise _refused(value, f"{word} is the beginning of {len(found)} cards' UUIDs")
    return found[0]


def _count(cards: tuple[Card, ...]) -> str:
    return f"{len(cards)}, 0 to {len(cards) - 1}" if cards else "none"


def _refused(value: str, why: str) -> RigError:
    return RigError(why, where=f"{VARIABLE}={value}", next_step="name cards as `./rig doctor` does")
