"""What two runs of the catcher together say, and what the table makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig.anchors.answers import (
    ANCHOR,
    CANNOT,
    CLEAN,
    NO_TOWER,
    Line,
    Record,
    Verdict,
    no_longer_clean,
    read_answer,
    read_record,
    routed_by,
    rows,
)
from rig.anchors.table import BEGIN, END, document, table
from rig.errors import RigError

MODELS = "vllm/model_executor/models"


def line(file: str, number: int, *, marked: bool = True, harmless: bool = False) -> Line:
    code = f"return self.{Path(file).stem}.weight.device"
    return Line(f"{MODELS}/{file}", number, code, "read", harmless, "fails", marked)


def verdict(name: str, *lines: Line, verdict: str = "", **more: Any) -> Verdict:
    met = any(found.marked and not found.harmless for found in lines)
    return Verdict(name, verdict or (ANCHOR if met else CLEAN), lines=lines, **more)


def test_an_answer_is_read() -> None:
    found = {
        "site": {"file": f"{MODELS}/a.py", "line": 7, "code": "x.device"},
        "kind": "read",
        "how": ["device"],
        "weights": ["visual.w"],
        "harmless": False,
        "why": "1 image: fails",
        "marked": True,
    }
    read = read_answer(
        {
            "architecture": "A",
            "verdict": ANCHOR,
            "marks": [["_mark_tower_model", ["image", "video"], ["visual"]]],
            "towers": ["Tower"],
            "stem": True,
            "runs": ["1 image", "2 images"],
            "parameters": 57,
            "unmet": ["visual.w"],
            "findings": [found, found | {"harmless": True}, found | {"marked": False}],
        }
    )
    assert [a.place for a in read.anchors] == ["a.py:7"]
    assert [a.place for a in read.outside] == ["a.py:7"]
    assert (read.routed, read.towers, read.runs) == ("tower: image, video", ("Tower",), 2)
    assert (read.weights, read.unmet) == (57, 1)
    assert read.claims_too_much


def test_a_stem_that_streams_may_have_harmless_reads_and_others_weights() -> None:
    harmless = verdict(
        "A", line("a.py", 1, harmless=True), line("a.py", 2, marked=False), stem=True
    )
    assert harmless.verdict == CLEAN and not harmless.claims_too_much


@pytest.mark.parametrize(
    ("marks", "routed"),
    [
        ([], ""),
        ([["_mark_tower_model", ["image"], []]], ""),
        (
            [["_mark_tower_model", ["image"], ["v"]], ["_mark_tower_model", ["audio"], ["a"]]],
            "tower: image; tower: audio",
        ),
        ([["_mark_composite_model", ["image"], ["v"]]] * 2, "composite: image"),
    ],
)
def test_routed_by(marks: list[Any], routed: str) -> None:
    assert routed_by(marks) == routed


def test_an_anchor_is_fixed_by_the_patch_that_touches_its_file() -> None:
    touched = {f"{MODELS}/a.py": ["0402", "0401"], f"{MODELS}/b.py": ["0403"]}
    release = [verdict("A", line("a.py", 7), line("b.py", 9)), verdict("B", line("b.py", 9))]
    # Lines move, their text does not.
    series = [verdict("A", line("b.py", 12)), verdict("B")]
    first, second = rows(release, series, touched)
    assert (first.found, first.left, first.fixed_by) == (
        ("a.py:7", "b.py:9"),
        ("b.py:12",),
        ("0401", "0402"),
    )
    assert (second.found, second.left, second.fixed_by) == (("b.py:9",), (), ("0403",))


def test_what_cannot_be_built_any_more_is_not_fixed() -> None:
    touched = {f"{MODELS}/a.py": ["0401"]}
    (row,) = rows([verdict("A", line("a.py", 7))], [verdict("A", verdict=CANNOT)], touched)
    assert row.fixed_by == () and row.verdict == CANNOT


RECORD = Record(
    "0.33.0",
    tuple(
        rows(
            [verdict("Fixed", line("a.py", 7), line("a.py", 9)), verdict("Left", line("c.py", 3))],
            [
                verdict(
                    "Fixed",
                    line("d.py", 5, marked=False),
                    stem=True,
                    routed="tower: image",
                    weights=57,
                ),
                verdict("Left", line("c.py", 4), weights=9, unmet=2),
                verdict("New", verdict=CANNOT, reason="no <config> | class"),
                verdict("Drafter", verdict=NO_TOWER),
            ],
            {f"{MODELS}/a.py": ["0401"]},
        )
    ),
)


def test_the_table_tells_what_the_record_holds() -> None:
    text = table(RECORD)
    assert "| Fixed | tower: image | 57 | a.py:7, 9 | 0401 | - | d.py:5 | yes |" in text
    assert "| Left | nothing (unmarked) | 7 of 9 | c.py:3 | - | c.py:4 | - | no |" in text
    assert "| New | no &lt;config> \\| class |" in text
    assert "4 multimodal architectures, 2 of them really run" in text
    assert "with anchors as released: 2. With the series: 1 with anchors, 1 clean." in text
    assert "(drafters): Drafter." in text


def test_only_the_table_of_a_document_changes() -> None:
    text = f"# Head\n\n{BEGIN}\nold\n{END}\n\ntail\n"
    made = document(text, RECORD)
    assert made.startswith("# Head\n") and made.endswith(f"{END}\n\ntail\n")
    assert "old" not in made and document(made, RECORD) == made
    with pytest.raises(ValueError, match="missing"):
        document("# Head\n", RECORD)


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(RECORD.text(), "utf-8")
    assert read_record(path) == RECORD
    path.write_text("{}", "utf-8")
    with pytest.raises(RigError, match="cannot be read"):
        read_record(path)


def test_what_was_clean_and_is_not() -> None:
    found = [verdict("Fixed", line("a.py", 1)), verdict("Left"), verdict("Other", line("b.py", 1))]
    assert [v.architecture for v in no_longer_clean(RECORD, found)] == ["Fixed"]
    gone = [verdict("Fixed", verdict=CANNOT, reason="crashes: ended by SIGSEGV")]
    assert [v.architecture for v in no_longer_clean(RECORD, gone)] == ["Fixed"]
