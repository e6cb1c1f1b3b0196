"""What pasted texts have told so far, by card index and by PCI address; made into a Box at the end.

Some commands number the cards (nvidia-smi), some only name their addresses (lspci), some only
their numbers (topo). A card's number is its place in the order of addresses, so that the two meet
where a text shows all addresses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

UNKNOWN_ADDRESS = "unknown"
MOST_CARDS = 64
_ADDRESS = re.compile(
    r"^(?:([0-9a-f]{4}|[0-9a-f]{8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", re.IGNORECASE
)


@dataclass
class Draft:
    """Args: by_index, by_address: facts of cards, `link_*` for those of the link; all_addresses:
    the text is known to show every card's; attached: how many cards a text says there are."""

    by_index: dict[int, dict[str, Any]] = field(default_factory=dict)
    by_address: dict[str, dict[str, Any]] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)
    pairs: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    bridges: dict[str, bool | None] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    attached: int = 0
    looked_at_cards: bool = False
    bus_cards: dict[str, str | None] = field(default_factory=dict)  # of lspci, by address: name
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, sentence: str) -> None:
        self.notes.setdefault(sentence)

    def card(self, index: int) -> dict[str, Any]:
        """The facts of a card by its number."""
        self.looked_at_cards = True
        return self.by_index.setdefault(index, {})

    def at(self, address: str) -> dict[str, Any]:
        """The facts of a card by its address."""
        return self.by_address.setdefault(address, {})


def address_of(text: str) -> str | None:
    """ "0A:00.0", "00000000:0A:00.0" as "0000:0a:00.0"; None if it is no address."""
    match = _ADDRESS.match(text.strip())
    if not match:
        return None
    domain = (match[1] or "0000")[-4:]
    return f"{domain}:{match[2]}:{match[3]}.{match[4]}".lower()


def whole(text: str | None, most: int = 10**9) -> int | None:
    """A plain whole number, or None."""
    plain = (text or "").strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 12):
        return None
    return int(plain) if int(plain) <= most else None


_SIZE = re.compile(r"^(\d{1,12}(?:[.,]\d{1,4})?)\s*([KMGTP]?)(i?)B?$", re.IGNORECASE)
_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def size_of(text: str | None) -> int | None:
    """Bytes of "24576 MiB", "64M", "1.5G" (all of them binary, as these programs mean)."""
    match = _SIZE.match((text or "").strip())
    if not match:
        return None
    return int(float(match[1].replace(",", ".")) * _FACTORS[match[2].upper()])


def number_of(text: str | None) -> float | None:
    """The number that "350.00 W" or "1695 MHz" begins with."""
    match = re.match(r"\s*(\d{1,9}(?:\.\d{1,6})?)\b", text or "")
    return float(match[1]) if match else None


def yes_or_no(text: str | None) -> bool | None:
    """On, Enabled, Yes; Off, Disabled, No; else None."""
    word = (text or "").strip().lower()
    if word in ("on", "enabled", "yes"):
        return True
    return False if word in ("off", "disabled", "no") else None


def put(into: dict[str, Any], **facts: Any) -> None:
    """Take what is known; an earlier text's fact stays."""
    for name, value in facts.items():
        if value is not None and into.get(name) is None:
            into[name] = value
