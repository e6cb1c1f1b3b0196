"""`rig absence` on fabricated series: which tests miss their patch, and which only seem to."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from rig.absence import absence, left_out_with
from rig.errors import RigError
from rig.pins import find_pin
from rig.series.apply import apply
from rig.series.listing import read_mails
from tests.series.releases import PRIMARY, message
from tests.series.workshop import Workshop

MISSING_IT = """\
from vllm.engine import engine_040


def test_value():
    assert engine_040 == 4000
"""
VACUOUS = "def test_nothing():\n    assert True\n"
NOT_COLLECTED = "import vllm.added\n\n\ndef test_added():\n    assert vllm.added\n"


def _patch(workshop: Workshop, number: str, files: dict[str, str], **trailers: str) -> None:
    tree = workshop.layout.tree(PRIMARY)
    for path, content in files.items():
        (tree / path).write_text(content)
    workshop.commit(message(number, f"Patch {number}", **trailers))


def _engine(workshop: Workshop) -> str:
    engine = (workshop.layout.tree(PRIMARY) / "vllm/engine.py").read_text()
    return engine.replace("engine_040 = 40\n", "engine_040 = 4000\n")


def _run(workshop: Workshop, tmp_path: Path, numbers: list[str] | None = None) -> list[str]:
    """The verdicts, with the applied tree's package as the installed one."""
    workshop.refresh()
    pin = find_pin(workshop.layout, PRIMARY)
    applied = apply(workshop.layout, pin)
    site = tmp_path / "site-packages"
    shutil.copytree(applied.folder / "vllm", site / "vllm")
    before = {p: p.read_bytes() for p in site.rglob("*") if p.is_file()}
    try:
        return [str(v) for v in absence(workshop.layout, applied, _python(site), site, numbers)]
    finally:
        assert {p: p.read_bytes() for p in site.rglob("*") if p.is_file()} == before


def _python(site: Path) -> Path:
    """An interpreter that has the package installed, as an engine's environment has."""
    script = site.parent / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


def test_a_test_that_misses_its_patch(workshop: Workshop, tmp_path: Path) -> None:
    workshop.start()
    _patch(
        workshop,
        "0101",
        {"vllm/engine.py": _engine(workshop), "tests/test_value.py": MISSING_IT},
        Tests="tests/test_value.py",
    )
    (verdict,) = _run(workshop, tmp_path)
    assert "with it 1 passed, 0 failed, 0 errors; without it 0 passed, 1 failed" in verdict


@pytest.mark.parametrize(
    ("test", "files"),
    [(VACUOUS, {}), (NOT_COLLECTED, {"vllm/added.py": "added = True\n"})],
    ids=["vacuous", "not collected"],
)
def test_a_test_that_does_not_fail_without_its_patch(
    workshop: Workshop, tmp_path: Path, test: str, files: dict[str, str]
) -> None:
    workshop.start()
    engine = {"vllm/engine.py": _engine(workshop)}
    _patch(workshop, "0101", {**engine, **files, "tests/t.py": test}, Tests="tests/t.py")
    with pytest.raises(RigError, match="no test fails without it"):
        _run(workshop, tmp_path)


def test_a_file_that_cannot_import_what_its_patch_adds(workshop: Workshop, tmp_path: Path) -> None:
    workshop.start()
    files = {"vllm/added.py": "added = True\n", "tests/t.py": NOT_COLLECTED}
    _patch(workshop, "0101", files, Tests="tests/t.py")
    (verdict,) = _run(workshop, tmp_path)
    assert "without it 0 passed, 0 failed, 1 errors" in verdict


def test_a_file_that_cannot_be_collected_for_another_reason(
    workshop: Workshop, tmp_path: Path
) -> None:
    workshop.start()
    test = "import importlib.util\n\nassert importlib.util.find_spec('vllm.added')\n"
    test += "\n\ndef test_added():\n    pass\n"
    _patch(
        workshop,
        "0101",
        {"vllm/added.py": "added = True\n", "tests/t.py": test},
        Tests="tests/t.py",
    )
    with pytest.raises(RigError, match="no test fails without it"):
        _run(workshop, tmp_path)


def test_a_test_that_fails_with_its_patch(workshop: Workshop, tmp_path: Path) -> None:
    workshop.start()
    wrong = MISSING_IT.replace("4000", "4001")
    _patch(
        workshop,
        "0101",
        {"vllm/engine.py": _engine(workshop), "tests/t.py": wrong},
        Tests="tests/t.py",
    )
    with pytest.raises(RigError, match="do not pass with the series"):
        _run(workshop, tmp_path)


def test_vllm_s_own_pytest_settings_hold_not_those_of_a_folder_above(
    workshop: Workshop, tmp_path: Path
) -> None:
    (workshop.root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--no"\n')
    workshop.start()
    marked = "import pytest\n\npytestmark = pytest.mark.theirs\n" + MISSING_IT
    theirs = '[tool.pytest.ini_options]\naddopts = "--strict-markers"\nmarkers = ["theirs: x"]\n'
    files = {"vllm/engine.py": _engine(workshop), "pyproject.toml": theirs, "tests/t.py": marked}
    _patch(workshop, "0101", files, Tests="tests/t.py")
    (verdict,) = _run(workshop, tmp_path)
    assert "with it 1 passed" in verdict


def test_what_requires_a_patch_goes_with_it(workshop: Workshop) -> None:
    workshop.start()
    for number, requires in (
        ("0101", "none"),
        ("0102", "0101"),
        ("0103", "none"),
        ("0104", "0102"),
    ):
        _patch(workshop, number, {f"vllm/new_{number}.py": "x = 1\n"}, Requires=requires)
    workshop.refresh()
    pin = find_pin(workshop.layout, PRIMARY)
    mails = [m for _, m in read_mails(workshop.layout, pin)]
    assert left_out_with(mails, "0101") == {"0101", "0102", "0104"}
    assert left_out_with(mails, "0103") == {"0103"}


def test_a_number_that_the_series_does_not_have(workshop: Workshop, tmp_path: Path) -> None:
    workshop.start()
    _patch(workshop, "0101", {"vllm/new.py": "x = 1\n"})
    with pytest.raises(RigError, match="the series has no patch 0999"):
        _run(workshop, tmp_path, ["0999"])
