"""Each constructed upstream gets the right verdict, and the tree that a person would make."""

from __future__ import annotations

import pytest

from .conftest import Make, look
from .corpus import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_verdict_and_right_tree(made: Make, case: Case) -> None:
    report, tree = look(made(case))
    assert {j.number: j.verdict for j in report.judged} == case.verdicts, report.judged
    if case.right is None:
        assert report.waiting, "a person must be asked"
    else:
        assert not report.waiting, report.waiting
        assert tree == case.right(case.new_release())
