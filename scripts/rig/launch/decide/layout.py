"""Which ranks there are, and on which cards."""

from __future__ import annotations

from itertools import combinations

from rig.box.facts import Box, Card
from rig.box.visible import visible_cards
from rig.errors import RigError
from rig.launch.arguments import value_of, whole_number_of
from rig.launch.decide.words import Known, Layout, Notes, User

# Published for 4x RTX 3090 (a community's own benchmark; not measured here).
_TRADE = "published for 4x3090: one stream 69 tok/s with TP4, 54 with TP2; 64 streams 295 and 473"


class NotEnoughCardsError(RigError):
    """More cards are asked for than this process can see."""


def decide_layout(known: Known, user: User, notes: Notes) -> Layout:
    """Ranks and cards.

    Raises:
        RigError: a size is no number, or more cards are asked for than the box has.
    """
    tensor, pipeline = _sizes(known, user, notes)
    data = whole_number_of(user.arguments, "--data-parallel-size", "-dp") or 1
    layout = Layout(tensor, pipeline, data)
    cards = None if user.rehearse else _cards(known, layout, user, notes)
    return Layout(tensor, pipeline, data, cards)


def _sizes(known: Known, user: User, notes: Notes) -> tuple[int, int]:
    arguments = user.arguments
    asked = whole_number_of(arguments, "--tensor-parallel-size", "-tp")
    stages = whole_number_of(arguments, "--pipeline-parallel-size", "-pp")
    count = known.rig.cards.count if known.rig is not None else user.ranks
    if count < 1:
        raise RigError(f"ranks is {count}", next_step="serve on one device or more")
    if asked is not None:
        if asked != count and (stages or 1) * asked != count:
            why = f"your --tensor-parallel-size {asked} wins over this rig's {count}"
            notes.say("conflict", "--tensor-parallel-size", why)
        return asked, stages or 1
    if stages is not None:
        # A rig's cards are shared out; a bare number of ranks is the size of tensor parallelism.
        tensor = count if known.rig is None else max(count // stages, 1)
        if known.rig is not None and tensor * stages < count:
            why = f"{tensor} x {stages} ranks leave {count - tensor * stages} of {count} cards idle"
            notes.say("layout", "ranks", why)
        return tensor, stages
    if known.memory is not None:
        chosen = known.memory.layout
        if chosen.tensor * chosen.pipeline != count or chosen.pipeline > 1:
            why = (
                f"the plan chose {chosen.tensor} x {chosen.pipeline} ranks by the model's heads "
                f"and size; idle cards: {chosen.idle}"
            )
            notes.say("layout", "ranks", why)
        _say_the_trade(chosen.tensor, count, notes)
        return chosen.tensor, chosen.pipeline
    return _without_a_plan(count, known, notes)


def _without_a_plan(count: int, known: Known, notes: Notes) -> tuple[int, int]:
    if known.rig is not None and count > 1:
        heads = "the model's heads can be shared by the cards: no memory plan was made"
        notes.say("assumed", "ranks", heads)
    many = known.rig is not None and known.rig.defaults.users == "many"
    if known.rig is not None and count & (count - 1):
        why = (
            f"{count} cards rarely divide a model's heads: each card holds whole layers "
            "(pipeline). For one user, fewer cards in tensor parallel answer faster and the rest "
            "stay idle: --tensor-parallel-size 2"
        )
        notes.say("layout", "ranks", why)
        return 1, count
    if many and count >= 4:
        why = f"many users: 2 x {count // 2} ranks win over one group of {count} ({_TRADE})"
        notes.say("layout", "ranks", why)
        return 2, count // 2
    if known.rig is not None:
        _say_the_trade(count, count, notes)
    return count, 1


def _say_the_trade(tensor: int, count: int, notes: Notes) -> None:
    """Say whom one group of all cards serves best."""
    if tensor == count >= 4:
        why = (
            f"one user: one group of {count} answers fastest ({_TRADE}); for many users "
            f"--tensor-parallel-size 2 --pipeline-parallel-size {count // 2}, or replicas"
        )
        notes.say("layout", "ranks", why)


def _cards(known: Known, layout: Layout, user: User, notes: Notes) -> tuple[int, ...] | None:
    """The card of each rank; None where the box was not seen."""
    needed = layout.devices
    box = known.box
    if box is None or box.cards is None:
        if known.rig is not None:
            why = f"the cards are those of the rig file {known.rig.name}: nobody looked at them"
            notes.say("assumed", "cards", why)
        return None
    told = user.inherited.get("CUDA_VISIBLE_DEVICES")
    order = user.inherited.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    indexes = {card.index for card in box.cards}
    if told is not None:
        shown = _as_told(box, told, needed, notes)
        by_uuid = all(word.strip().upper().startswith("GPU-") for word in told.split(","))
        if by_uuid or order == "PCI_BUS_ID":
            _say_split_pairs(box, shown, layout.tensor, notes)
            _say_what_is_mixed(box, shown, notes)
            return shown
        _say_unknown_order(order, notes)
        return None
    device_ids = value_of(user.arguments, "--device-ids")
    if device_ids is not None:
        notes.say("conflict", "--device-ids", "your --device-ids decides about the cards")
        return None
    if len(indexes) < needed:
        raise NotEnoughCardsError(
            f"{needed} GPUs are needed and {len(indexes)} are here",
            where=box.source,
            next_step=f"use fewer: --tensor-parallel-size {max(len(indexes), 1)}, "
            "or rehearse without GPUs: --rehearse",
        )
    if order != "PCI_BUS_ID":
        _say_unknown_order(order, notes)
        return None
    chosen = _choose(box, needed)
    ordered = _pairs_side_by_side(box, chosen, layout.tensor)
    _say_what_is_mixed(box, ordered, notes)
    return ordered


def _as_told(box: Box, told: str, needed: int, notes: Notes) -> tuple[int, ...]:
    shown = visible_cards(box, told)
    if len(shown) < needed:
        raise NotEnoughCardsError(
            f"{needed} GPUs are needed and {len(shown)} are here (CUDA_VISIBLE_DEVICES={told})",
            next_step="show more, unset it, or use fewer: --tensor-parallel-size",
        )
    notes.say("layout", "cards", f"CUDA_VISIBLE_DEVICES={told} is yours and decides")
    return tuple(card.index for card in shown[:needed])


def _say_unknown_order(order: str, notes: Notes) -> None:
    """What was proven of cards by slot must not be taken for cards in another order."""
    why = f"your CUDA_DEVICE_ORDER={order} numbers the cards: which ones are used is not known here"
    notes.say("assumed", "cards", why)


def _choose(box: Box, needed: int) -> tuple[int, ...]:
    """The best cards: alike, free, joined by NVLink, with a wide way to the CPU."""
    assert box.cards is not None
    cards = {card.index: card for card in box.cards}
    everything = tuple(sorted(cards))
    if len(everything) == needed:
        return everything
    nvlinks = _nvlink_pairs(box)

    def cost(chosen: tuple[int, ...]) -> tuple[float, ...]:
        some = [cards[i] for i in chosen]
        kinds = len({card.compute_capability for card in some})
        busy = sum(bool(card.processes) for card in some)
        smallest = min(card.memory_bytes or 0 for card in some)
        joined = sum(set(pair) <= set(chosen) for pair in nvlinks)
        narrow = -sum(_width(card) for card in some)
        screens = sum(bool(card.display_active) for card in some)
        nodes = len({card.numa_node for card in some})
        return (kinds, busy, -smallest, -joined, screens, narrow, nodes, *chosen)

    return min(combinations(everything, needed), key=cost)


def _width(card: Card) -> float:
    lanes = float(card.link.width_now or 0)
    return lanes / 2 if card.link.behind_chipset else lanes


def _nvlink_pairs(box: Box) -> list[tuple[int, int]]:
    return [(p.first, p.second) for p in box.pairs or () if p.level == "NV"]


def _pairs_side_by_side(box: Box, chosen: tuple[int, ...], tensor: int) -> tuple[int, ...]:
    """The same cards, NVLink partners next to each other, then cards of one NUMA node.

    Which cards are partners is read from the matrix: on a board with four, 0 and 2 can be a pair.
    """
    if tensor < 2 or len(chosen) < 3:
        return chosen
    assert box.cards is not None
    node = {card.index: card.numa_node if card.numa_node is not None else -1 for card in box.cards}
    partners = dict(_nvlink_pairs(box)) | {b: a for a, b in _nvlink_pairs(box)}
    ordered: list[int] = []
    for index in sorted(chosen, key=lambda i: (node[i], i)):
        if index in ordered:
            continue
        ordered.append(index)
        partner = partners.get(index)
        if partner in chosen and partner not in ordered:
            ordered.append(partner)
    return tuple(ordered)


def _say_split_pairs(box: Box, told: tuple[int, ...], tensor: int, notes: Notes) -> None:
    """Say where the user's order parts cards that NVLink joins."""
    better = _pairs_side_by_side(box, told, tensor)
    groups = [set(told[i : i + tensor]) for i in range(0, len(told), tensor)]
    pairs = [pair for pair in _nvlink_pairs(box) if set(pair) <= set(told)]
    if better != told and any(not any(set(pair) <= group for group in groups) for pair in pairs):
        why = f"your order of cards parts NVLink partners; {','.join(map(str, better))} does not"
        notes.say("conflict", "CUDA_VISIBLE_DEVICES", why)


def _say_what_is_mixed(box: Box, chosen: tuple[int, ...], notes: Notes) -> None:
    assert box.cards is not None
    some = [card for card in box.cards if card.index in chosen]
    sizes = {card.memory_bytes for card in some if card.memory_bytes is not None}
    if len(sizes) > 1:
        why = f"the smallest card ({min(sizes) / 2**30:.0f} GiB) sets the size of every rank"
        notes.say("advice", "cards", why)
    if len({card.compute_capability for card in some if card.compute_capability}) > 1:
        why = "cards of more than one generation: the slowest sets the pace, and no P2P"
        notes.say("advice", "cards", why)
