"""Pages that are made from the code are what it makes now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rig.cli_docs
from rig.cli import app
from rig.docs_tables import pages, patches
from rig.docs_tables.failures import failure_table
from rig.docs_tables.patches import cell, first_sentence, patch_table
from rig.docs_tables.pins import pin_table
from rig.engine_log.known import KNOWN
from rig.errors import RigError
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import read_pins

LAYOUT = layout_of_this_checkout()
assert rig.cli_docs


def test_the_committed_pages_are_fresh() -> None:
    """Renew them with `./rig docs --write`."""
    assert pages.stale_pages(LAYOUT) == []


def test_each_patch_has_a_row() -> None:
    numbers = [
        line[:4]
        for line in LAYOUT.series.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    rows = re.findall(r"^\| (\d{4}) \|(.+)\|$", patch_table(LAYOUT), re.MULTILINE)
    assert [number for number, _ in rows] == numbers
    for number, row in rows:
        cells = [part.strip() for part in re.split(r"(?<!\\)\|", row)]
        assert len(cells) == 5 and all(cells), number
        what, why, upstream, tests, _ = cells
        assert what != why and len(why) > 40, number
        assert re.match(r"Pending|Submitted|Backport|Inappropriate", upstream), number
        assert tests.startswith("`tests/"), number


def test_each_pin_is_there_with_its_files() -> None:
    page = pin_table(LAYOUT)
    for pin in read_pins(LAYOUT):
        assert f"| {pin.version} | {pin.role} | `{pin.commit}` | {pin.torch} |" in page
        assert f"| `{pin.sdist.name}` | `{pin.sdist.sha256[:12]}` |" in page
        for by_arch in pin.wheels.values():
            for wheel in by_arch.values():
                assert f"| `{wheel.name}` | `{wheel.sha256[:12]}` |" in page
        for number in pin.skip:
            assert f"{pin.version} does not carry {number}:" in page


def test_each_known_failure_has_a_row() -> None:
    assert failure_table(LAYOUT).count("\n| ") >= len(KNOWN)


def test_a_change_is_seen_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "docs_folder", lambda layout: tmp_path)
    assert len(pages.stale_pages(LAYOUT)) == len(pages.PAGES)  # none is there
    assert len(pages.write_pages(LAYOUT)) == len(pages.PAGES)
    assert pages.stale_pages(LAYOUT) == [] == pages.write_pages(LAYOUT)
    page = tmp_path / "pins.md"
    page.write_text(page.read_text().replace("0.33.0", "0.34.0"))
    assert pages.stale_pages(LAYOUT) == ["docs/pins.md"]


def test_the_command_fails_on_a_stale_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(app, ["docs"]).exit_code == 0
    monkeypatch.setattr(pages, "docs_folder", lambda layout: tmp_path)
    result = CliRunner().invoke(app, ["docs"])
    assert isinstance(result.exception, RigError)
    assert CliRunner().invoke(app, ["docs", "--write"]).exit_code == 0
    assert CliRunner().invoke(app, ["docs"]).exit_code == 0


def test_a_reason_for_a_patch_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = tmp_path / "why.toml"
    why.write_text('9999 = "nothing"\n')
    monkeypatch.setattr(patches, "_WHY", why)
    with pytest.raises(RigError, match="9999"):
        patch_table(LAYOUT)


def test_a_patch_without_a_reason_gets_its_first_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "why.toml").write_text("")
    monkeypatch.setattr(patches, "_WHY", tmp_path / "why.toml")
    assert "A vllm-rig wheel is an upstream wheel with a series of patches in it." in patch_table(
        LAYOUT
    )


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("Subject\n\nOne line\nand more. Then another.\n\nBelow.", "One line and more."),
        ("Subject\n\nIn 0.33. that is so. And", "In 0.33. that is so."),
        ('Subject\n\nIt says "no". It does.', 'It says "no".'),
        ("Subject", ""),
    ],
)
def test_first_sentence(message: str, sentence: str) -> None:
    assert first_sentence(message) == sentence


def test_cells_are_plain() -> None:
    assert cell("a|b <c> *d* e_f [g]") == r"a\|b \<c\> \*d\* e\_f \[g\]"


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "patches" / "pins").mkdir(parents=True)
    (tmp_path / "patches" / "revision").write_text("1\n")
    pin = LAYOUT.pins / "0.33.0.toml"
    (tmp_path / "patches" / "pins" / pin.name).write_text(pin.read_text())
    with pytest.raises(RigError):
        pin_table(Layout(tmp_path, tmp_path))
