"""The catcher, in the environment of an engine: toys that must be caught, then all models."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rig.anchors.answers import ANCHOR, CLEAN, Record, no_longer_clean, read_record, rows
from rig.anchors.command import DOCUMENT, RECORD, patches_by_file
from rig.anchors.overlay import overlay_commit, overlay_tree
from rig.anchors.run import Run, catch, worker_command
from rig.anchors.table import document
from rig.layout import layout_of_this_checkout
from rig.pins import Pin, find_pin, read_pins
from rig.series.apply import apply
from rig.series.pristine import PRISTINE_REF

from .conftest import Stage

pytestmark = pytest.mark.engine

FEWEST_RUN = 40
"""Architectures that must really run, or the catcher has lost its way into the models."""
TIMEOUT_SECONDS = 900


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_toys_are_caught(stage: Stage, tmp_path: Path) -> None:
    root = layout_of_this_checkout().root
    how = worker_command(stage.environment.python, root, None, tmp_path / "log")
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(str(stage.environment.python), "-P", "-m", "pytest", "-q", "--tb=short"),
            *("-p", "no:cacheprovider", f"--junitxml={report}"),
            str(root / "tests" / "anchors" / "test_judging.py"),
        ],
        cwd=tmp_path,
        env=dict(how.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS - 60,
        check=False,
    )
    said = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, said
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) >= 15 and not any(c.find("skipped") is not None for c in cases), said


def run_all(stage: Stage, pin: Pin, folder: Path, *, series: bool) -> Run:
    layout = layout_of_this_checkout()
    tree = apply(layout, pin).folder
    (folder / "tree").mkdir(parents=True)
    if series:
        package = overlay_tree(tree, folder / "tree")
    else:
        package = overlay_commit(tree, PRISTINE_REF, folder / "tree")
    return catch(worker_command(stage.environment.python, layout.root, package, folder / "log"))


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_no_tower_of_the_primary_release_has_an_unexpected_anchor(
    stage: Stage, tmp_path: Path
) -> None:
    layout = layout_of_this_checkout()
    pin = find_pin(layout, None)
    series = run_all(stage, pin, tmp_path / "series", series=True)
    ran = [v for v in series.verdicts if v.verdict in (CLEAN, ANCHOR)]
    assert len(ran) >= FEWEST_RUN, series.counts()
    assert not series.unusable
    assert [v.architecture for v in series.verdicts if v.claims_too_much] == []
    recorded = read_record(layout.root / RECORD)
    assert no_longer_clean(recorded, series.verdicts) == []

    release = run_all(stage, pin, tmp_path / "release", series=False)
    # A catcher that finds nothing anywhere would call everything clean.
    assert sum(bool(v.anchors) for v in release.verdicts) >= FEWEST_RUN // 2
    fresh = Record(
        pin.version, tuple(rows(release.verdicts, series.verdicts, patches_by_file(layout, pin)))
    )
    assert recorded == fresh, "renew it: ./rig anchors --record"
    text = (layout.root / DOCUMENT).read_text("utf-8")
    assert document(text, fresh) == text


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_other_pins_have_no_anchor_where_the_primary_has_none(stage: Stage, tmp_path: Path) -> None:
    layout = layout_of_this_checkout()
    recorded = read_record(layout.root / RECORD)
    for pin in read_pins(layout):
        if pin.version == find_pin(layout, None).version:
            continue
        found = run_all(stage, pin, tmp_path / pin.version, series=True)
        ran = [v for v in found.verdicts if v.verdict in (CLEAN, ANCHOR)]
        assert len(ran) >= FEWEST_RUN, (pin.version, found.counts())
        built = [v for v in no_longer_clean(recorded, found.verdicts) if v.verdict == ANCHOR]
        assert built == [], pin.version
