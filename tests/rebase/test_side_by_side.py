"""The committed table of other ways is what they do here, where they are installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .corpus import CASES
from .side_by_side import BEGIN, END, WAYS, rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rebase.md"


def committed() -> dict[str, dict[str, str]]:
    """Case -> way -> outcome, as the page says."""
    lines = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    ways = cells[0][1:]
    names = {case.name for case in CASES}
    return {row[0]: dict(zip(ways, row[1:], strict=True)) for row in cells if row[0] in names}


def test_every_case_is_in_the_table_and_ours_is_never_silently_wrong() -> None:
    table = committed()
    assert list(table) == [case.name for case in CASES]
    for case in CASES:
        wanted = "refused" if case.right is None else "right"
        assert table[case.name]["`make rebase`"] == wanted, case.name


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_table_is_true(tmp_path: Path) -> None:
    assert [way for way, (program, _) in WAYS.items() if shutil.which(program)], "no tool is here"
    table = committed()
    for name, outcomes in rows(tmp_path).items():
        for way, outcome in outcomes.items():
            assert table[name][way] == outcome, (name, way)
