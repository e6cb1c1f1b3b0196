"""The PCIe links: lanes at idle, speed only under load, and what the way to the CPU shares."""

from __future__ import annotations

from rig.box.facts import Box, Card
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import Check, Said, each_card

# From this on a card counts as under load: an idle card lets its link fall to the first
# generation, a busy one does not. A judgement of these tools.
LOAD_PERCENT = 50
# Fewer lanes than this are worth a warning even when the slot has no more. A judgement, too: the
# published losses (field reports of 2026) are of x4 and of chipset slots, not of x8.
FEW_LANES = 8


def link_width(box: Box, rig: Rig | None, context: Context) -> Said:
    """Lanes now, against slot, card and rig file; right at idle, too."""

    def judge(card: Card) -> Said:
        link = card.link
        now, most = link.width_now, link.width_max
        if now is None or most is None:
            return Said("unknown", "lanes not known")
        seen = f"x{now} of the card's x{most}"
        if rig is not None and now < rig.link.width:
            step = "seat the card and its riser anew; compare: `sudo lspci -vv | grep -E "
            step += "'^[0-9a-f]|LnkCap:|LnkSta:'`; look for a slot that shares lanes with an M.2"
            if link.slot_width_max is not None and now >= link.slot_width_max:
                step = f"this slot gives x{now} and no more: move the card to another, or correct "
                step += "the rig file"
            return Said("fail", f"{seen}, and rig {rig.name} says x{rig.link.width}", step)
        if now < most:
            slot = link.slot_width_max
            if slot is None and now >= FEW_LANES:
                return Said("unknown", f"{seen}; what the slot could do is not known")
            if slot is not None and now < min(most, slot):
                step = "seat the card and its riser anew, and look in the BIOS for how lanes are "
                step += "split (bifurcation)"
                return Said("warn", f"{seen}, and the slot has x{slot}", step)
            seen += (
                "; what the slot could do is not known" if slot is None else ", as the slot gives"
            )
        if now < FEW_LANES:
            step = "move the card to a slot with more lanes, or keep traffic low: "
            step += "`--pipeline-parallel-size` instead of tensor parallel, or one replica per card"
            return Said("warn", seen, step)
        return Said("pass", seen)

    return each_card(box, context, judge)


def link_speed(box: Box, rig: Rig | None, context: Context) -> Said:
    """The generation now, judged only where it can be: at its maximum, or under load."""

    def judge(card: Card) -> Said:
        link = card.link
        now, most = link.generation_now, link.generation_max
        if now is None or most is None:
            return Said("unknown", "generation not known")
        if now >= most and (rig is None or now >= rig.link.generation):
            return Said("pass", f"generation {now}")
        slot = link.slot_generation_max
        if slot is None:
            return Said("unknown", f"generation {now} of {most}; the slot's is not known")
        can = min(most, slot)
        seen = f"generation {now} of {can}" + (f" (the slot's; the card's {most})" * (slot < most))
        if rig is not None and can < rig.link.generation:
            step = "look in the BIOS for the slot's generation, or correct the rig file"
            return Said("warn", f"{seen}; rig {rig.name} says {rig.link.generation}", step)
        if now >= can:
            return Said("pass", seen)
        if card.utilisation_percent is None or card.utilisation_percent < LOAD_PERCENT:
            step = "an idle link is slow by design: run this again while the engine answers"
            return Said("unknown", f"{seen}, but the card is not under load", step)
        step = "set the slot's generation by hand in the BIOS, try without the riser, and look "
        step += "for errors: `sudo dmesg | grep -i aer`"
        return Said("warn", f"{seen}, under load", step)

    return each_card(box, context, judge)


def link_chipset(box: Box, rig: Rig | None, context: Context) -> Said:
    """A slot behind the chipset, by its place in the tree."""

    def judge(card: Card) -> Said:
        behind = card.link.behind_chipset
        if behind is None:
            return Said("unknown", "its place in the tree is not known")
        if behind:
            step = "move the card to a slot of the CPU; the board's manual names them"
            return Said("warn", "behind the chipset, whose uplink it shares", step)
        return Said("pass", "on the CPU's own lanes")

    return each_card(box, context, judge)


CHECKS = (
    Check(
        "link-width",
        "links",
        link_width,
        "lanes now, against the slot, the card and the rig file",
        "Tensor parallel sends every layer's results over these lanes; lanes do not sleep, so "
        "this is true at idle, too.",
        "`nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv` "
        "and `sudo lspci -vv`",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "link-speed",
        "links",
        link_speed,
        "the PCIe generation now, only under load",
        "Half the generation is half the bandwidth, but an idle link slows down by design.",
        "under load: `nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max "
        "--format=csv -l 1`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "link-chipset",
        "links",
        link_chipset,
        "a slot behind the chipset, by its place in the tree",
        "Such a slot shares the chipset's uplink with disks and network, and `topo -m` calls it "
        "PHB like the good ones.",
        "`lspci -tv`: does the card hang below the same root port as disks, USB and network?",
        ("warn", "unknown", "pass"),
    ),
)
