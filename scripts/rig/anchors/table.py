"""The table of docs/device-anchors.md, made from a record and never typed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rig.anchors.answers import ANCHOR, CANNOT, CLEAN, NO_TOWER, Record, Row

BEGIN = "<!-- made by ./rig anchors --record: do not edit from here -->"
END = "<!-- to here -->"


def document(text: str, record: Record) -> str:
    """Replace the table in the document; raises ValueError if its marks are missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{BEGIN} or {END} is missing")
    return f"{head}{BEGIN}\n\n{table(record)}\n{END}{tail}"


def table(record: Record) -> str:
    """Counts, the table, and what could not be built with its reasons."""
    count = Counter(row.verdict for row in record.rows)
    ran = [row for row in record.rows if row.verdict in (CLEAN, ANCHOR)]
    without = [row.architecture for row in record.rows if row.verdict == NO_TOWER]
    had = sum(bool(row.found) for row in ran)
    lines = [
        f"vLLM {record.release}: {len(record.rows)} multimodal architectures, {len(ran)} of them "
        f"really run. Of these, with anchors as released: {had}. With the series: "
        f"{count[ANCHOR]} with anchors, {count[CLEAN]} clean.",
        "",
        "| architecture | routed by | weights | anchors found | fixed by | left | outside towers "
        "| streams stem |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(row) for row in ran),
        "",
        f"Without a tower of their own (drafters): {', '.join(without) or 'none'}.",
        "",
        f"Not run: {count[CANNOT]}.",
        "",
        "| architecture | reason |",
        "|---|---|",
        *(
            f"| {row.architecture} | {_cell(row.reason)} |"
            for row in record.rows
            if row.verdict == CANNOT
        ),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    cells = (
        row.architecture,
        row.routed or "nothing (unmarked)",
        f"{row.weights - row.unmet} of {row.weights}" if row.unmet else str(row.weights),
        _places(row.found) or "none",
        ", ".join(row.fixed_by) or ("-" if not row.found or row.left else "?"),
        _places(row.left) or "-",
        _places(row.outside) or "-",
        "yes" if row.stem else "no",
    )
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _places(places: Sequence[str]) -> str:
    """`file:1, 2; other:3`: a file is named once."""
    by_file: dict[str, list[str]] = {}
    for place in places:
        file, _, number = place.rpartition(":")
        by_file.setdefault(file, []).append(number)
    return "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in by_file.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
