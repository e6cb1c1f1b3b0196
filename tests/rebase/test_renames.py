"""A file that upstream gave another name: the report names it, and says what comes next."""

from __future__ import annotations

from rig.rebase.verdict import Judged, Verdict
from tests.series.releases import Tree

from .conftest import Make, look
from .corpus import CASES, ENGINE, FIX, ONE, Case, Patch, both, edit, move

_MOTOR = "vllm/motor.py"
_OTHER = edit(ENGINE, "engine_070 = 70\n", "engine_070 = 7\n")


def _rewritten(files: Tree) -> Tree:
    return edit(ENGINE, "engine_040 = 40\n", "engine_040 = 4 * 1000\n")(files)


def _judged(made: Make, case: Case) -> dict[str, Judged]:
    report, _ = look(made(case))
    return {one.number: one for one in report.judged}


def test_one_that_git_follows(made: Make) -> None:
    one = _judged(made, next(c for c in CASES if c.name == "the file is renamed"))["0101"]
    name, following = one.notes
    assert name == f"{ENGINE} became {_MOTOR} upstream (100 % the same)"
    assert "next: read its range-diff" in following
    assert "`--edit 0101`" in following
    assert "still names" not in following


def test_a_message_that_names_the_old_file(made: Make) -> None:
    patch = Patch("0101", FIX, {"Probes": f'once {ENGINE} "engine_001 = 1"'})
    one = _judged(made, Case("", (patch,), move(ENGINE, _MOTOR), {}, None))["0101"]
    assert one.verdict is Verdict.PROBE_FAILED
    assert f"its message still names {ENGINE}" in one.notes[1]


def test_a_conflict_in_the_renamed_file(made: Make) -> None:
    upstream = both(_rewritten, move(ENGINE, _MOTOR))
    one = _judged(made, Case("", ONE, upstream, {}, None))["0101"]
    assert one.verdict is Verdict.CONFLICT
    assert [file.path for file in one.conflicts] == [_MOTOR]
    name, both_sides = one.notes
    assert name.startswith(f"{ENGINE} became {_MOTOR} upstream (9")
    assert name.endswith(" % the same): git merges it there")
    assert both_sides == f"{_MOTOR}: both sides changed the same lines"


def test_one_that_the_merge_does_not_follow(made: Make) -> None:
    """0101 makes the file twice as long and conflicts; without it the merge of 0102 finds no
    rename, but between the releases there is one. Its lines are too short to be looked for.
    """
    long = "".join(f"more_{at:03d} = {at}\n" for at in range(120))
    grown = edit(ENGINE, "engine_040 = 40\n", f"engine_040 = 4000\n{long}")
    case = Case(
        "",
        (Patch("0101", grown), Patch("0102", _OTHER)),
        both(_rewritten, move(ENGINE, _MOTOR)),
        {},
        None,
    )
    one = _judged(made, case)["0102"]
    assert [(file.path, file.stages) for file in one.conflicts] == [(ENGINE, (1, 3))]
    assert one.verdict is Verdict.TARGET_MOVED
    (note,) = one.notes
    assert note.startswith(f"{ENGINE} is gone; {ENGINE} became {_MOTOR} upstream (9")
    assert f"Next: make its change in {_MOTOR}, then `git rm {ENGINE}`" in note


def test_one_that_git_follows_and_that_is_partly_there(made: Make) -> None:
    case = Case(
        "", (Patch("0101", both(FIX, _OTHER)),), both(_OTHER, move(ENGINE, _MOTOR)), {}, None
    )
    one = _judged(made, case)["0101"]
    assert one.verdict is Verdict.TARGET_MOVED
    assert f"2 of its lines are there already, in {_MOTOR}" in one.notes
