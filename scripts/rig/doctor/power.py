"""Power and clocks. Only ever read: nothing is set by these tools."""

from __future__ import annotations

from rig.box.facts import Box, Card
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import LABELS, Check, Said, each_card, nothing_to_judge, used_cards

# Of the supply's figure. A judgement: peaks of a millisecond are above any cap, which is a mean.
_SAFE = 0.85

# One figure is not right for every card.
_CHOOSE = ", MHZ well below the card's highest (a field report of 2026 set 1550 on 3090s)"


def power_supply(box: Box, rig: Rig | None, context: Context) -> Said:
    """The cards' limits and the rest of the box, against the supply that the rig file names."""
    cards = used_cards(box, context)
    if not cards:
        return nothing_to_judge(cards) or Said("unknown", "")
    limits = [card.power_limit_w for card in cards]
    if any(limit is None for limit in limits):
        return Said("unknown", "the power limit of a card is not known")
    total = sum(limit for limit in limits if limit is not None)
    if rig is None or rig.power.psu_w is None:
        step = "write it into the rig file: psu_w under [power]"
        return Said("unknown", f"cards up to {total:.0f} W; the supply is not known", step)
    supply, rest = rig.power.psu_w, rig.power.rest_of_box_w
    seen = f"cards up to {total:.0f} W and {rest} W for the rest, of a supply of {supply} W"
    each = max(100, int((supply * _SAFE - rest) / len(cards)))
    step = f"cap the cards and lock their clocks, both: `sudo nvidia-smi -pl {each}`, "
    step += f"`sudo nvidia-smi -lgc 210,MHZ`{_CHOOSE} (after a restart both are gone)"
    if total + rest > supply:
        return Said("fail", seen, step)
    if total + rest > _SAFE * supply:
        return Said("warn", f"{seen}: more than {_SAFE:.0%}", step)
    return Said("pass", seen)


def power_cap(box: Box, rig: Rig | None, context: Context) -> Said:
    """The cap now, against the card's default and the rig file's wish."""

    def judge(card: Card) -> Said:
        limit, default = card.power_limit_w, card.power_default_w
        if limit is None or default is None:
            return Said("unknown", "power limit not known")
        seen = f"limit {limit:.0f} W, default {default:.0f} W"
        wish = rig.power.cap_w if rig is not None else None
        if wish is not None and limit > wish:
            step = f"`sudo nvidia-smi -i {LABELS} -pl {wish}`"
            return Said("warn", f"{seen}; the rig file wants at most {wish} W", step)
        if limit > default:
            step = f"`sudo nvidia-smi -i {LABELS} -pl {default:.0f}`"
            return Said("warn", f"{seen}: raised above its default", step)
        return Said("pass", seen)

    return each_card(box, context, judge)


def clocks(box: Box, rig: Rig | None, context: Context) -> Said:
    """Whether the clocks of a capped card are locked, too."""

    def judge(card: Card) -> Said:
        limit, default = card.power_limit_w, card.power_default_w
        if limit is None or default is None:
            return Said("unknown", "power limit not known")
        wish = rig.power.lock_graphics_mhz if rig is not None else None
        if limit >= default and wish is None:
            return Said("pass", "not capped, so no lock is needed")
        locked, most = card.graphics_clock_locked_mhz, card.graphics_clock_max_mhz
        step = f"`sudo nvidia-smi -i {LABELS} -lgc 210,{wish or 'MHZ'}`{'' if wish else _CHOOSE}"
        if locked is None or most is None:
            return Said("unknown", f"limit {limit:.0f} W; not known whether clocks are locked")
        if locked == 0 or locked >= most:
            return Said("warn", f"capped at {limit:.0f} W and not locked", step)
        if wish is not None and locked > wish:
            return Said("warn", f"locked at {locked} MHz, the rig file wants {wish}", step)
        return Said("pass", f"locked at {locked} of {most} MHz")

    return each_card(box, context, judge)


def persistence(box: Box, rig: Rig | None, context: Context) -> Said:
    """Persistence mode."""

    def judge(card: Card) -> Said:
        if card.persistence is None:
            return Said("unknown", "not known")
        if card.persistence:
            return Said("pass", "on")
        return Said("warn", "off", "`sudo nvidia-smi -pm 1`, or the unit nvidia-persistenced")

    return each_card(box, context, judge)


CHECKS = (
    Check(
        "power-supply",
        "power",
        power_supply,
        "the cards' limits and the rest of the box, against the supply in the rig file",
        "A supply that trips takes the whole box down, often at the start of tensor parallel.",
        "`nvidia-smi --query-gpu=index,power.limit,power.default_limit --format=csv`",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "power-cap",
        "power",
        power_cap,
        "each card's power limit, against its default and the rig file",
        "A cap is lost at a restart, and a raised limit is more than the cooler was made for.",
        "`nvidia-smi -q -d POWER`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "clocks",
        "power",
        clocks,
        "whether the clocks of a capped card are locked",
        "A cap is a mean over time: only locked clocks bound the peaks that trip a supply.",
        "`nvidia-smi -q -d CLOCK`; a lock cannot be read back from every driver",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "persistence",
        "power",
        persistence,
        "persistence mode",
        "Without it the driver forgets caps and clocks whenever no program uses a card.",
        "`nvidia-smi --query-gpu=index,persistence_mode --format=csv`",
        ("warn", "unknown", "pass"),
    ),
)
