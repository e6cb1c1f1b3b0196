"""Which patches a record answers for: a change that could change the answer takes it away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rig.absence import Outcome, Verdict
from rig.absence_record import (
    changed_patches,
    digests,
    read_record,
    record_path,
    write_record,
)
from rig.errors import RigError
from rig.pins import find_pin
from rig.series.apply import apply
from rig.series.listing import read_mails
from tests.series.releases import PRIMARY, message
from tests.series.workshop import Workshop

Files = dict[str, str]


def _commit(workshop: Workshop, number: str, files: Files, **trailers: str) -> None:
    tree = workshop.layout.tree(PRIMARY)
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(content)
    workshop.commit(message(number, f"Patch {number}", **trailers))


def _now(workshop: Workshop) -> dict[str, str]:
    workshop.refresh()
    pin = find_pin(workshop.layout, PRIMARY)
    tree = apply(workshop.layout, pin)
    return digests(tree, [mail for _, mail in read_mails(workshop.layout, pin)])


def _three(workshop: Workshop) -> dict[str, str]:
    """0101 and 0201 stand alone, 0102 needs 0101; all is on record."""
    workshop.start()
    for number, requires in (("0101", "none"), ("0102", "0101"), ("0201", "none")):
        test = f"tests/test_{number}.py"
        files = {f"vllm/new_{number}.py": "x = 1\n", test: "def test(): pass\n"}
        _commit(workshop, number, files, Tests=test, Requires=requires)
    now = _now(workshop)
    counts = Outcome(1, 0, 0, ""), Outcome(0, 1, 0, "")
    write_record(workshop.layout, PRIMARY, now, [Verdict(name, *counts) for name in now])
    return now


def _changed(workshop: Workshop) -> list[str]:
    found = changed_patches(read_record(workshop.layout, PRIMARY), _now(workshop))
    return [name[:4] for name in found]


def test_a_record_answers_for_what_was_run(workshop: Workshop) -> None:
    now = _three(workshop)
    assert _changed(workshop) == []
    seen = {s.seen for s in read_record(workshop.layout, PRIMARY).values()}
    assert seen == {"with it 1 passed, 0 failed, 0 errors; without it 0 passed, 1 failed, 0 errors"}
    assert len(now) == 3


def _a_test_of_its_own(workshop: Workshop) -> None:
    files = {"tests/test_0201.py": "def test(): assert 1\n"}
    _commit(workshop, "0301", files, Tests="tests/test_0301.py")


def _a_file_it_touches(workshop: Workshop) -> None:
    _commit(workshop, "0301", {"vllm/new_0201.py": "x = 2\n"}, Tests="tests/test_0301.py")


def _what_tests_import(workshop: Workshop) -> None:
    _commit(workshop, "0301", {"tests/kit.py": "y = 1\n"}, Tests="tests/test_0301.py")


def _one_that_requires_it(workshop: Workshop) -> None:
    files = {"vllm/new_0301.py": "z = 1\n"}
    _commit(workshop, "0301", files, Tests="tests/test_0301.py", Requires="0101")


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (_a_test_of_its_own, ["0201", "0301"]),
        (_a_file_it_touches, ["0201", "0301"]),
        (_what_tests_import, ["0101", "0102", "0201", "0301"]),
        (_one_that_requires_it, ["0101", "0301"]),
    ],
)
def test_a_change_is_run_again(
    workshop: Workshop, change: Callable[[Workshop], None], changed: list[str]
) -> None:
    _three(workshop)
    tests = workshop.layout.tree(PRIMARY) / "tests/test_0301.py"
    tests.write_text("def test(): pass\n")
    change(workshop)
    assert _changed(workshop) == changed


def test_a_patch_that_is_gone_leaves_the_record(workshop: Workshop) -> None:
    now = _three(workshop)
    kept = dict(list(now.items())[:2])
    write_record(workshop.layout, PRIMARY, kept, [])
    assert list(read_record(workshop.layout, PRIMARY)) == list(kept)


def test_a_damaged_record_is_no_answer(workshop: Workshop) -> None:
    _three(workshop)
    record_path(workshop.layout, PRIMARY).write_text("{")
    with pytest.raises(RigError, match="cannot be read"):
        read_record(workshop.layout, PRIMARY)


def test_no_record_answers_for_nothing(workshop: Workshop) -> None:
    workshop.start()
    _commit(workshop, "0101", {"vllm/new.py": "x = 1\n"})
    assert _changed(workshop) == ["0101"]
