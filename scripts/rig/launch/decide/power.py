"""What a person should know of power. Nothing is ever set: only said."""

from __future__ import annotations

from rig.launch.decide.words import Known, Layout, Notes


def say_power(known: Known, layout: Layout, notes: Notes) -> None:
    """Compare the cards' limits (watts) with the supply that the rig file names."""
    if known.rig is None:
        return
    power = known.rig.power
    cards = (known.box.cards if known.box is not None else None) or ()
    cards = tuple(card for card in cards if layout.cards and card.index in layout.cards)
    limits = [card.power_limit_w for card in cards]
    if power.psu_w is not None:
        each = [limit if limit is not None else power.cap_w for limit in limits]
        if not each and power.cap_w is not None:
            each = [power.cap_w] * layout.devices
        if not each or None in each:
            notes.say("assumed", "power", "the supply is enough: the cards' limits are not known")
        else:
            total = sum(watts for watts in each if watts is not None) + power.rest_of_box_w
            if total > power.psu_w:
                why = (
                    f"the cards' limits and the rest of the box add up to {total:.0f} W, the "
                    f"supply gives {power.psu_w} W: lower the limits (nvidia-smi -pl) yourself"
                )
                notes.say("advice", "power", why)
    over = [c.index for c in cards if power.cap_w and (c.power_limit_w or 0) > power.cap_w]
    if over:
        why = f"the rig file wants a cap of {power.cap_w} W; above it: card {over}; not set by us"
        notes.say("advice", "power", why)
    if power.lock_graphics_mhz is not None:
        unlocked = [c.index for c in cards if c.graphics_clock_locked_mhz is None]
        if unlocked:
            why = (
                "a cap is an average and bursts go above it; the rig file wants clocks locked at "
                f"{power.lock_graphics_mhz} MHz (nvidia-smi -lgc); not set by us"
            )
            notes.say("advice", "power", why)
