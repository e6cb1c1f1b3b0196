"""Take a log line apart: who spoke, how loud, what was said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LONGEST = 20_000  # the engine prints its whole configuration in one line of about 4,000
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\[(?:3[0-7]|0)m")
_SPEAKER = re.compile(r"^\s*\(([^()]*?)\s*\bpid=(\d+)[^()]*\)\s?")
_RANK = re.compile(r"^\[rank(\d+)\]:?\s?")
_LEVEL = re.compile(
    r"^(INFO|WARNING|ERROR|DEBUG|CRITICAL):?\s+"
    r"(?:\d{2}-\d{2}\s+[\d:.,]+\s+)?(?:\[?[\w./<>-]+\.py:\d+\]\s?)?"
)
_RAY_STAMP = re.compile(r"^\d{4}-\d\d-\d\d [\d:,.]+\s+(INFO|WARNING|ERROR)\s+\S+:\d+ -- ")
_TP = re.compile(r"_TP(\d+)")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")


@dataclass(frozen=True)
class Line:
    """Args: speaker: "Worker_TP0", "EngineCore", ...; tp: its tensor-parallel rank if it says so;
    level: "" where the line has none."""

    said: str
    speaker: str = ""
    tp: int | None = None
    level: str = ""

    @property
    def rank_key(self) -> str:
        """Which rank a figure belongs to; "" is unknown."""
        return self.speaker if self.tp is not None else ""


def parse_line(raw: str) -> Line:
    """Take one line apart. Any text will do."""
    text = _COLOUR.sub("", raw[:_LONGEST]).rstrip("\r\n").rpartition("\r")[2]
    speaker, tp, level = "", None, ""
    while match := _SPEAKER.match(text):
        speaker = match[1] or speaker
        text = text[match.end() :]
    if match := _TP.search(speaker):
        tp = int(match[1])
    if match := _LEVEL.match(text) or _RAY_STAMP.match(text):
        level = match[1]
        text = text[match.end() :]
    if match := _RANK.match(text):
        tp = int(match[1]) if tp is None else tp
        speaker = speaker or f"rank{match[1]}"
        text = text[match.end() :]
    return Line(_REPEATED.sub("", text).rstrip(), speaker, tp, level)


def parse_lines(lines: Iterable[str]) -> Iterator[Line]:
    """All lines that say something."""
    for raw in lines:
        line = parse_line(raw)
        if line.said:
            yield line


_UNITS = {
    "bytes": 1,
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "MB": 10**6,
    "GB": 10**9,
}


def size(number: str, unit: str) -> int:
    """Bytes of "1.5", "GiB"."""
    return round(float(number) * _UNITS[unit])
