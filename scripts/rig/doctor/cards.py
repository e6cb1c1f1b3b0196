"""The cards themselves: are they there, alike, and free."""

from __future__ import annotations

from rig.box.facts import Box, Card, CardProcess
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import (
    LABELS,
    NO_DRIVER,
    Check,
    Said,
    each_card,
    gib,
    nothing_to_judge,
    used_cards,
)

# Memory in use on a card that no process holds: a driver keeps some hundred MiB for itself.
# This limit is a judgement of these tools, not a figure of the driver's.
UNDRAINED_BYTES = 1 << 30


def wanted_cards(rig: Rig | None, context: Context) -> int | None:
    """How many cards a start needs, if anybody said so."""
    if context.cards_wanted is not None:
        return context.cards_wanted
    return rig.cards.count if rig is not None else None


def cards_seen(box: Box, rig: Rig | None, context: Context) -> Said:
    """Whether there are cards that the driver shows."""
    wanted = wanted_cards(rig, context)
    if box.cards:
        names = ", ".join(f"{card.index} {card.name or 'of unknown name'}" for card in box.cards)
        if any(card.name is None for card in box.cards):
            return Said("unknown", f"cards without a name: {names}")
        return Said("pass", names)
    if wanted == 0:
        return Said("unknown", "no card, and none is wanted")
    driver = box.host.driver_version
    step = (
        "see whether the card is on the bus (`lspci -nn | grep -i nvidia`), then whether the "
        "driver is loaded (`lsmod | grep nvidia`, `sudo dmesg | grep -i nvrm`)"
    )
    if box.cards is None and context.from_text and not box.host.driver_refused:
        return Said("unknown", NO_DRIVER, "add to the text: `nvidia-smi; nvidia-smi -q`")
    if box.cards is None:
        seen = "no NVIDIA driver answers, so nothing is known of cards"
        expected = bool(wanted) or driver is not None or context.from_text
        return Said("fail" if expected else "unknown", seen, step)
    seen = f"driver {driver or 'of unknown version'} answers and shows no card"
    return Said("fail", seen, step)


def cards_enough(box: Box, rig: Rig | None, context: Context) -> Said:
    """As many cards as a start needs."""
    wanted = wanted_cards(rig, context)
    if wanted == 0:
        return Said("pass", "none are wanted")
    cards = used_cards(box, context)
    if cards is None:
        return Said("unknown", NO_DRIVER)
    if wanted is None:
        return Said("pass", f"{len(cards)}, and nobody said how many are wanted")
    seen = f"{len(cards)} of {wanted}"
    if len(cards) < wanted:
        step = (
            f"serve with fewer: `--tensor-parallel-size {max(1, len(cards))}` after the model; or "
            "find the missing one: `lspci -nn | grep -i nvidia`, `echo $CUDA_VISIBLE_DEVICES`"
        )
        return Said("fail", seen, step)
    return Said("pass", seen)


def cards_alike(box: Box, rig: Rig | None, context: Context) -> Said:
    """All cards of one name and size."""
    cards = used_cards(box, context)
    if not cards:
        return nothing_to_judge(cards) or Said("unknown", "")
    kinds: dict[tuple[str, int], list[int]] = {}
    names = sorted({card.name for card in cards if card.name is not None})
    unknown = []
    for card in cards:
        if card.name is None or card.memory_bytes is None:
            unknown.append(card.index)
        else:
            kinds.setdefault((card.name, card.memory_bytes), []).append(card.index)
    parts = [
        f"{name} ({gib(size)}): {', '.join(map(str, found))}"
        for (name, size), found in kinds.items()
    ]
    if len(kinds) > 1 or len(names) > 1:
        step = (
            "choose alike ones: `CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=...` before "
            "the serve script; or accept the pace and the memory of the smallest"
        )
        return Said("warn", "; ".join(parts) if len(kinds) > 1 else ", ".join(names), step)
    if unknown:
        return Said("unknown", f"name or memory not known of card {', '.join(map(str, unknown))}")
    return Said("pass", "; ".join(parts))


def _held(card: Card) -> int | None:
    """Bytes of a card that its processes hold, as far as each is known; None: nobody could see."""
    if card.processes is None:
        return None
    return sum(process.memory_bytes or 0 for process in card.processes)


def _told(process: CardProcess) -> str:
    size = "?" if process.memory_bytes is None else gib(process.memory_bytes)
    return f"pid {process.pid} ({process.name or '?'}, {size})"


def cards_idle(box: Box, rig: Rig | None, context: Context) -> Said:
    """Other processes on the cards."""
    share = context.gpu_memory_utilization

    def judge(card: Card) -> Said:
        held = _held(card)
        if card.processes is None or held is None:
            return Said("unknown", "its processes could not be listed")
        if not card.processes:
            if box.host.container != "":  # inside, others' processes are hidden
                return Said("unknown", "no process is seen, but a container may hide others'")
            return Said("pass", "no other process")
        names = ", ".join(_told(process) for process in card.processes)
        pids = ",".join(str(process.pid) for process in card.processes)
        step = f"see whose they are: `ps -o pid,user,lstart,args -p {pids}`; "
        step += "end them, or give the engine less: `--gpu-memory-utilization`"
        total, free = card.memory_bytes, card.memory_free_bytes
        # What is used decides: some drivers do not say how much each process holds.
        used = held if total is None or free is None else max(held, total - free)
        if total is not None and used > (1 - share) * total:
            return Said("fail", f"{names}: more than the engine leaves ({1 - share:.0%})", step)
        return Said("warn", names, step)

    return each_card(box, context, judge)


def cards_drained(box: Box, rig: Rig | None, context: Context) -> Said:
    """Memory in use that no process accounts for."""
    share = context.gpu_memory_utilization

    def judge(card: Card) -> Said:
        total, free, held = card.memory_bytes, card.memory_free_bytes, _held(card)
        if total is None or free is None or held is None or card.processes is None:
            return Said("unknown", "memory or processes not known")
        if any(process.memory_bytes is None for process in card.processes):
            return Said("unknown", "a process does not say how much memory it holds")
        lost = total - free - held
        seen = f"{gib(free)} of {gib(total)} free"
        if lost <= UNDRAINED_BYTES:
            return Said("pass", seen)
        step = (
            "wait some seconds and look again: `nvidia-smi --query-gpu=index,memory.used "
            "--format=csv -l 1`; a process in another container or of another user may hold it: "
            "`sudo fuser -v /dev/nvidia*`"
        )
        seen = f"{seen}; {gib(lost)} are held by no process that is seen"
        return Said("fail" if total - free > (1 - share) * total else "warn", seen, step)

    return each_card(box, context, judge)


def card_display(box: Box, rig: Rig | None, context: Context) -> Said:
    """A card that drives a display."""

    def judge(card: Card) -> Said:
        if card.display_active is None:
            return Said("unknown", "not known whether it drives a display")
        if not card.display_active:
            return Said("pass", "no display")
        step = (
            "move the display to the CPU's graphics, or end the desktop until the next boot: "
            "`sudo systemctl isolate multi-user.target`"
        )
        return Said("warn", "drives a display", step)

    return each_card(box, context, judge)


def card_mig(box: Box, rig: Rig | None, context: Context) -> Said:
    """A card that is cut into MIG instances."""

    def judge(card: Card) -> Said:
        if card.mig is None:
            return Said("unknown", "not known whether it is cut into instances")
        if not card.mig:
            return Said("pass", "whole")
        step = f"`sudo nvidia-smi -i {LABELS} -mig 0` makes it whole (all its work ends)"
        return Said("warn", "cut into MIG instances", step)

    return each_card(box, context, judge)


def rig_file(box: Box, rig: Rig | None, context: Context) -> Said:
    """What the rig file says, against what is seen."""
    if rig is None:
        step = "`./rig doctor --rig NAME` or `--rig auto`; `ls scripts/rigs`"
        return Said("unknown", "no rig file was named, so nothing was compared", step)
    from rig.box.rigs import disagreements

    said = disagreements(rig, box)
    if said:
        step = f"correct the rig file {rig.name}, or let `--rig auto` describe the box as it is"
        return Said("warn", "; ".join(said), step)
    compared: list[object] = [pair.level for pair in box.pairs or ()]
    for card in box.cards or ():
        link = card.link
        compared += [card.name, card.memory_bytes, card.compute_capability, card.numa_node]
        compared += [link.width_now, link.generation_max, link.slot_generation_max]
    if not box.cards or box.pairs is None or None in compared:
        return Said("unknown", f"not enough is known to compare with rig {rig.name}")
    return Said("pass", f"the box is what rig {rig.name} says")


_QUERY = "`nvidia-smi --query-gpu=index,name,memory.total,memory.used --format=csv`"
CHECKS = (
    Check(
        "cards-seen",
        "cards",
        cards_seen,
        "which cards the driver shows",
        "The engine sees what the driver shows, and nothing else.",
        "`nvidia-smi -L`",
        ("fail", "unknown", "pass"),
    ),
    Check(
        "cards-enough",
        "cards",
        cards_enough,
        "as many cards as are wanted",
        "A rank without a card waits for ever, or the start is refused.",
        "`nvidia-smi -L`",
        ("fail", "unknown", "pass"),
    ),
    Check(
        "cards-alike",
        "cards",
        cards_alike,
        "name and memory of the cards",
        "The slowest card sets the pace and the smallest one the memory of all.",
        _QUERY,
        ("warn", "unknown", "pass"),
    ),
    Check(
        "cards-idle",
        "cards",
        cards_idle,
        "other processes on the cards",
        "The engine asks for its share of the whole card, and ends if that is not free.",
        "`nvidia-smi` (in a container: on the host, others' processes are hidden inside)",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "cards-drained",
        "cards",
        cards_drained,
        "memory in use that no process accounts for",
        "A start on a card that has not drained loses that much KV cache, or fails.",
        _QUERY,
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "card-display",
        "cards",
        card_display,
        "a card that drives a display",
        "A desktop takes memory, and the driver may refuse the mapping that P2P needs while it "
        "still grants P2P.",
        "`nvidia-smi --query-gpu=index,display_active --format=csv`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "card-mig",
        "cards",
        card_mig,
        "whether a card is cut into MIG instances",
        "An instance has no P2P and no NCCL to another one, so it can hold one rank alone.",
        "`nvidia-smi --query-gpu=index,mig.mode.current --format=csv`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "rig-file",
        "cards",
        rig_file,
        "what the rig file (`--rig`) says, against what is seen",
        "The rig file is what `plan` and `serve` decide by, so a wrong one gives wrong flags.",
        "`./rig doctor --rig auto`",
        ("warn", "unknown", "pass"),
    ),
)
