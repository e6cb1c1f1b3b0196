"""What `rig anchors` refuses before it takes time, and what it calls wrong afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.anchors.answers import ANCHOR, CLEAN, Line, Record, Verdict, read_record
from rig.anchors.command import RECORD, Wanted, _judged, anchors
from rig.anchors.run import Run
from rig.errors import RigError
from rig.layout import layout_of_this_checkout
from rig.pins import find_pin

LINE = Line("a.py", 1, "self.w.device", "read", harmless=False, why="two devices", marked=True)


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (Wanted(record=True, names=("A",)), "all architectures"),
        (Wanted(record=True, tree=Path("tree")), "not another tree"),
        (Wanted(table=Path("t.md"), tree=Path("tree")), "not another tree"),
        (Wanted(tree=Path("nowhere")), "no vLLM"),
        (Wanted(json=Path("nowhere") / "x.json"), "cannot write"),
        (Wanted(json=Path("folder")), "cannot write"),
    ],
)
def test_what_cannot_end_well_is_refused_at_once(
    wanted: Wanted, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    layout = layout_of_this_checkout()
    with pytest.raises(RigError, match=complaint):
        anchors(layout, find_pin(layout, None), lambda: pytest.fail("it took time"), wanted)


def run(*verdicts: Verdict) -> Run:
    return Run("9.9", verdicts, (), {})


def test_what_is_wrong_with_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = read_record(layout_of_this_checkout().root / RECORD)
    clean = next(row.architecture for row in recorded.rows if row.verdict == CLEAN)
    anchored = Verdict(clean, ANCHOR, "", lines=(LINE,))
    new = Verdict("BrandNew", ANCHOR, "", lines=(LINE,))
    assert _judged(recorded, run(Verdict(clean, CLEAN, "")), whole=False) == 0
    assert capsys.readouterr().out == ""
    assert _judged(recorded, run(anchored), whole=False) == 1
    assert f"FAILED {clean} is clean in" in capsys.readouterr().out
    assert _judged(recorded, run(new), whole=False) == 1
    assert "FAILED BrandNew has anchors, and is not in" in capsys.readouterr().out
    assert _judged(None, run(new), whole=False) == 0
    assert _judged(Record("9.9", recorded.rows[:2]), run(), whole=True) == 0
    assert recorded.rows[0].architecture in capsys.readouterr().out
