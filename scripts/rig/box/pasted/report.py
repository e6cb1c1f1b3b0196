"""Reports that were made for people: the lines of club-3090's report, and `rig report`'s JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from rig.box.facts import Box
from rig.box.pasted.draft import Draft, address_of, number_of, put, size_of, whole, yes_or_no

_CARD = re.compile(r"\*\*GPU (\d{1,3}):\*\*\s*(.{1,80}?)\s*\|\s*(\d{1,9} MiB)\s*\|(.{0,200})")
_DRIVER = re.compile(r"\bdriver ([\d.]{3,30})")
_PERSISTENCE = re.compile(r"\bpersistence=(\w{1,12})")
_POWER = re.compile(r"\*\*Power:\*\*\s*limit=([\d.]{1,9}) W")
_POWERS = re.compile(r"\(default=([\d.]{1,9}) W, max=([\d.]{1,9}) W\)")
_PCIE = re.compile(
    r"\*\*PCIe:\*\*\s*x(\d{1,2}) lanes negotiated \(GPU max x(\d{1,2}), Gen up to (\d)\)"
    r"(?:.{0,20}\bbus ([0-9A-Fa-f:.]{7,16}))?"
)
_SECTION = "## Box and checks as JSON"


def read_report_lines(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such lines; what they say goes into the draft."""
    found = False
    card: int | None = None
    for line in lines:
        if match := _CARD.search(line):
            card, found = whole(match[1], 63), True
            if card is None:
                continue
            facts = draft.card(card)
            put(facts, name=match[2], memory_bytes=size_of(match[3]))
            if driver := _DRIVER.search(match[4]):
                put(draft.host, driver_version=driver[1])
            if persistence := _PERSISTENCE.search(match[4]):
                put(facts, persistence=yes_or_no(persistence[1]))
        elif (power := _POWER.search(line)) and card is not None:
            put(draft.card(card), power_limit_w=number_of(power[1]))
            if powers := _POWERS.search(line):
                put(
                    draft.card(card),
                    power_default_w=number_of(powers[1]),
                    power_max_w=number_of(powers[2]),
                )
        elif pcie := _PCIE.search(line):
            found = True
            _pcie(pcie, card, draft)
    return found


def _pcie(pcie: re.Match[str], card: int | None, draft: Draft) -> None:
    address = address_of(pcie[4]) if pcie[4] else None
    if card is None and address is None:
        return
    facts = draft.card(card) if card is not None else draft.at(address or "")
    if card is not None and address:
        draft.addresses.setdefault(card, address)
    put(
        facts,
        link_width_now=whole(pcie[1], 32),
        link_width_max=whole(pcie[2], 32),
        link_generation_max=whole(pcie[3], 9),
    )


def box_of_our_report(text: str) -> Box | None:
    """The box that a `rig report` holds; None if the text is none, or not whole."""
    _, heading, rest = text.partition(_SECTION)
    start = rest.find("{")
    if not heading or start < 0:
        return None
    try:
        found: Any = json.JSONDecoder().raw_decode(rest, start)[0]
        return Box.model_validate(found["box"])
    except (ValueError, ValidationError, RecursionError, TypeError, KeyError):
        return None
