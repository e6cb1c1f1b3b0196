"""Make pasted text look as the program printed it, as far as that can be known."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTE = re.compile(r"^(?:> ?)+")
MOST_LINES = 200_000
LONGEST_LINE = 10_000


def clean_lines(text: str) -> list[str]:
    """Lines without colours, quoting and odd spaces; tabs stay."""
    plain = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    plain = plain.replace("\u00a0", " ").replace("\u2007", " ").replace("\ufeff", "")
    plain = plain.replace("\u2502", "|").replace("\x00", "")
    lines = plain.split("\n")[:MOST_LINES]
    return [_QUOTE.sub("", line)[:LONGEST_LINE].rstrip(" ") for line in lines]
