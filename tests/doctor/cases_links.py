"""Cases for the links: each check in each of its states."""

from __future__ import annotations

from tests.doctor.kit import Case, link, rig, spoilt

CASES = [
    Case("link-width", "pass", "x16 of the card's x16"),
    Case(
        "link-width", "pass", "as the slot gives", spoilt(link=link(width_now=8, slot_width_max=8))
    ),
    Case("link-width", "warn", "and the slot has x16", spoilt(link=link(width_now=8))),
    Case("link-width", "warn", "x4 of", spoilt(link=link(width_now=4, slot_width_max=4))),
    Case("link-width", "warn", "x4 of", spoilt(link=link(width_now=4, slot_width_max=None))),
    Case("link-width", "fail", "says x16", spoilt(link=link(width_now=4, slot_width_max=4)), rig()),
    Case(
        "link-width",
        "fail",
        "gives x4 and no more",
        spoilt(link=link(width_now=4, slot_width_max=4)),
        rig(),
    ),
    Case("link-width", "fail", "anew", spoilt(link=link(width_now=4, slot_width_max=16)), rig()),
    Case("link-width", "unknown", "lanes not known", spoilt(link=link(width_now=None))),
    Case(
        "link-width",
        "unknown",
        "slot could do",
        spoilt(link=link(width_now=8, slot_width_max=None)),
    ),
    Case("link-speed", "pass", "generation 4"),
    Case(
        "link-speed",
        "pass",
        "the slot's",
        spoilt(link=link(generation_now=3, slot_generation_max=3)),
    ),
    Case("link-speed", "unknown", "not under load", spoilt(link=link(generation_now=1))),
    Case(
        "link-speed",
        "unknown",
        "not under load",
        spoilt(link=link(generation_now=1), utilisation_percent=None),
    ),
    Case(
        "link-speed",
        "warn",
        "under load",
        spoilt(link=link(generation_now=1), utilisation_percent=97),
    ),
    Case(
        "link-speed",
        "warn",
        "says 4",
        spoilt(link=link(generation_now=3, slot_generation_max=3)),
        rig(),
    ),
    Case("link-speed", "unknown", "generation not known", spoilt(link=link(generation_now=None))),
    Case("link-chipset", "pass", "CPU's own"),
    Case("link-chipset", "warn", "card 1: behind", spoilt(link=link(behind_chipset=True))),
    Case("link-chipset", "unknown", "tree", spoilt(link=link(behind_chipset=None))),
]
