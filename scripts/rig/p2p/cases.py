"""Which checks a box needs, in which order, and why some of them are not made. Pure.

Order: what cannot do harm comes first, so that a hang later still leaves it known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import get_args

from rig.box.facts import Box, Card, Pair
from rig.p2p.verdict import Way

KIB, MIB = 1 << 10, 1 << 20
WAYS: tuple[Way, ...] = (
    "nccl-no-p2p",
    "copy",
    "copy-both-ways",
    "nccl-p2p",
    "custom",
    "pcie-ipc",
)
assert set(WAYS) == set(get_args(Way))
SIZES: dict[Way, tuple[int, ...]] = {
    "nccl-no-p2p": (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB),
    "copy": (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB),
    "copy-both-ways": (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB),
    "nccl-p2p": (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB),
    "custom": (4 * KIB, 64 * KIB, MIB, 4 * MIB),  # vLLM uses it below 8 MiB
    "pcie-ipc": (8 * KIB, 64 * KIB, 512 * KIB),  # rows of 4096 values of two bytes
}
QUICK_SIZES: dict[Way, tuple[int, ...]] = {
    **dict.fromkeys(WAYS, (64 * KIB, 16 * MIB)),
    "custom": (64 * KIB, 4 * MIB),
    "pcie-ipc": (8 * KIB, 512 * KIB),
}
REHEARSAL_LARGEST = 16 * MIB  # in memory that ranks of a small machine share
RANKS: dict[Way, tuple[int, ...]] = {"custom": (2, 4, 6, 8), "pcie-ipc": (2, 4, 8)}
DECIDES: dict[Way, str] = {
    "nccl-no-p2p": "whether these cards can serve together at all",
    "copy": "whether P2P between two cards delivers",
    "copy-both-ways": "whether P2P delivers when both send at once",
    "nccl-p2p": "NCCL over P2P",
    "custom": "vLLM's custom all-reduce",
    "pcie-ipc": "FlashInfer's all-reduce over PCIe (vLLM 0.33 and later)",
}
_GUESSED_S: dict[Way, int] = {
    "nccl-no-p2p": 15,
    "copy": 10,
    "copy-both-ways": 10,
    "nccl-p2p": 15,
    "custom": 40,
    "pcie-ipc": 60,
}
"""Seconds of a case on cards: guesses from how long the imports take; not measured."""


@dataclass(frozen=True)
class Case:
    """One check, in processes of its own.

    Args:
        cards: by index in the box; for a copy the first sends.
        sizes: bytes, in the order in which they are checked.
        level: NCCL_P2P_LEVEL for NCCL over P2P.
        needed: without it nothing can be served on all cards.
        skip: why it is not made, or "".
    """

    way: Way
    cards: tuple[int, ...]
    sizes: tuple[int, ...]
    level: str = ""
    needed: bool = False
    skip: str = ""

    @property
    def ranks(self) -> int:
        """How many processes: a copy is made by one that sees both cards."""
        return 1 if self.way.startswith("copy") else len(self.cards)

    def __str__(self) -> str:
        between = {"copy": " to ", "copy-both-ways": " and "}.get(self.way, ", ")
        return f"{self.way} {between.join(map(str, self.cards))}"


def plan_cases(
    box: Box, *, quick: bool = False, only: Collection[Way] = (), groups: bool = True
) -> list[Case]:
    """All cases of a box of two or more cards, those that are not made included.

    Args:
        quick: fewer sizes, and fewer pairs for the all-reduces.
        only: only these ways; all if empty.
        groups: also all-reduces over parts of the cards.
    """
    cards = box.cards or ()
    indices = tuple(card.index for card in cards)
    every = tuple(groups_of(box, quick=quick)) if groups else (indices,)
    pairs = tuple(combinations(indices, 2))
    sizes = QUICK_SIZES if quick else SIZES
    where: dict[Way, Sequence[tuple[int, ...]]] = {
        "nccl-no-p2p": (indices,),
        "copy": tuple(permutations(indices, 2)),
        "copy-both-ways": pairs,
        "nccl-p2p": every,
        "custom": every,
        "pcie-ipc": every,
    }
    found = []
    for way in WAYS:
        if only and way not in only:
            continue
        for over in where[way] if len(indices) > 1 else ():
            level = nccl_p2p_level(box, over) if way == "nccl-p2p" else ""
            needed = way == "nccl-no-p2p"
            found.append(Case(way, over, sizes[way], level, needed, _why_not(box, way, over)))
    return found


def guessed_seconds(cases: Sequence[Case]) -> int:
    """How long the cases may take on cards; a guess."""
    return sum(_GUESSED_S[case.way] for case in cases if not case.skip)


def groups_of(box: Box, *, quick: bool = False) -> list[tuple[int, ...]]:
    """Sets of cards that a tensor-parallel group may be made of; small ones first.

    Pairs joined by NVLink; blocks of 2, 4 and 8 neighbours; all cards; and every pair where there
    are no more than four cards.
    """
    indices = tuple(card.index for card in box.cards or ())
    found: set[tuple[int, ...]] = {
        (pair.first, pair.second)
        for pair in box.pairs or ()
        if pair.level == "NV" and {pair.first, pair.second} <= set(indices)
    }
    for size in (2, 4, 8):
        found |= {
            indices[start : start + size] for start in range(0, len(indices) - size + 1, size)
        }
    if len(indices) <= 4 and not quick:
        found |= set(combinations(indices, 2))
    if len(indices) > 1:
        found.add(indices)
    return sorted(found, key=lambda group: (len(group), group))


def nccl_p2p_level(box: Box, cards: Sequence[int]) -> str:
    """How far apart NCCL may use P2P (NCCL_P2P_LEVEL) for all of these cards to reach each other.

    "PHB" (NVLink and everything below one host bridge) or "SYS"; "SYS" also where it is not known
    how they are joined.
    """
    levels = {pair.level for pair in _pairs_within(box, cards)}
    if len(_pairs_within(box, cards)) < len(cards) * (len(cards) - 1) // 2 or None in levels:
        return "SYS"
    return "SYS" if levels & {"NODE", "SYS"} else "PHB"


def is_nvlinked(box: Box, cards: Sequence[int]) -> bool:
    """Whether every two of these cards are joined by NVLink."""
    levels = [pair.level for pair in _pairs_within(box, cards)]
    return len(levels) == len(cards) * (len(cards) - 1) // 2 and set(levels) == {"NV"}


def _pairs_within(box: Box, cards: Sequence[int]) -> list[Pair]:
    return [pair for pair in box.pairs or () if {pair.first, pair.second} <= set(cards)]


def _why_not(box: Box, way: Way, over: Sequence[int]) -> str:
    if way == "nccl-no-p2p":
        return ""
    sizes = RANKS.get(way)
    if sizes and len(over) not in sizes:
        return f"it takes {', '.join(map(str, sizes[:-1]))} or {sizes[-1]} cards, not {len(over)}"
    cards = [card for card in box.cards or () if card.index in over]
    unknown = [str(card.index) for card in cards if card.compute_capability is None]
    if unknown:
        return f"the generation of card {', '.join(unknown)} is not known; P2P needs one for all"
    if len({card.compute_capability for card in cards}) > 1:
        return f"never P2P across generations: {'; '.join(map(_generation, cards))}"
    for pair in _pairs_within(box, over):
        if pair.p2p == "refused":
            why = f" ({pair.p2p_why})" if pair.p2p_why else ""
            return f"the driver refuses P2P between {pair.first} and {pair.second}{why}"
    if way == "custom" and len(over) > 2 and not is_nvlinked(box, over):
        lacking = [str(card.index) for card in cards if card.uuid is None]
        if lacking or box.host.driver_version is None:
            what = f"the UUID of card {', '.join(lacking)}" if lacking else "the driver's version"
            return f"vLLM's opt-in for more than two PCIe cards needs {what}, which is not known"
    return ""


def _generation(card: Card) -> str:
    major, minor = card.compute_capability or (0, 0)
    return f"card {card.index} is {card.name or 'of'} {major}.{minor}"
