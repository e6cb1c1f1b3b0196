"""docs/doctor.md holds the table that the code prints."""

from __future__ import annotations

from pathlib import Path

from rig.doctor.gate import GATE
from rig.doctor.table import CHECKS, markdown

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"


def test_the_page_holds_the_table_of_the_code() -> None:
    """Renew it with `./rig doctor --list`."""
    assert markdown() in _PAGE.read_text()


def test_the_page_names_the_gate() -> None:
    page = _PAGE.read_text()
    for name, why in GATE.items():
        assert f"| `{name}` | {why} |" in page


def test_names_are_unique_and_short() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 18 for name in names)
