"""The series on trees that are no release, and which pin a patch still applies to."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.pins import primary_pin
from rig.rebase.bisect import bisect_pin
from rig.rebase.forecast import forecast, risks
from rig.rebase.verdict import Verdict
from tests.series.releases import Tree
from tests.series.workshop import Workshop, run_git

from .conftest import checkout_of, read_tree, write_tree
from .corpus import CASES, CONFIG, ONE, Case, Patch, edit, nothing

CONFLICT = next(c for c in CASES if c.name == "the same fix in other words")
_CONTEXT = edit(CONFIG, "config_018 = 18\n", "config_018 = 1\n")  # 0.2.0 changes two lines below


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return checkout_of(CONFLICT, tmp_path_factory.mktemp("forecast") / "w")


def _folder(tmp_path: Path, files: Tree) -> Path:
    folder = tmp_path / "a tree"
    folder.mkdir()
    write_tree(folder, {}, files)
    return folder


def _verdicts(workshop: Workshop, source: object) -> dict[str, Verdict]:
    before = read_tree(workshop.root / "patches")
    report = forecast(workshop.layout, primary_pin(workshop.layout), str(source))
    assert read_tree(workshop.root / "patches") == before
    assert [j.number for j in risks(report)] == [j.number for j in report.judged]
    return {j.number: j.verdict for j in report.judged}


def test_a_folder(workshop: Workshop, tmp_path: Path) -> None:
    folder = _folder(tmp_path, CONFLICT.new_release())
    before = read_tree(folder)
    assert _verdicts(workshop, folder) == {"0101": Verdict.CONFLICT}
    assert read_tree(folder) == before


def test_an_sdist(workshop: Workshop, tmp_path: Path) -> None:
    folder = _folder(tmp_path, CONFLICT.new_release())
    sdist = tmp_path / "vllm.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(folder, "vllm-9.9.9")
    assert _verdicts(workshop, sdist) == {"0101": Verdict.CONFLICT}


@pytest.mark.parametrize("ref", ["", "@main", "@v9"])
def test_a_git_address(workshop: Workshop, tmp_path: Path, ref: str) -> None:
    folder = _folder(tmp_path, CONFLICT.new_release())
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    run_git(folder, "add", "-A", "--force")
    run_git(folder, "commit", "--quiet", "-m", "all")
    run_git(folder, "tag", "v9")
    assert _verdicts(workshop, f"file://{folder}{ref}") == {"0101": Verdict.CONFLICT}


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("no/such/folder", "no such folder or file, and it is no git address"),
        ("file:///nowhere/at/all.git@main", "the tree cannot be fetched"),
        ("", "no such folder"),
    ],
)
def test_a_source_that_is_not_there(workshop: Workshop, source: str, error: str) -> None:
    if not source:
        source = "-"
    with pytest.raises(RigError, match=error):
        forecast(workshop.layout, primary_pin(workshop.layout), source)


def test_a_folder_without_vllm(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x = 1\n")
    with pytest.raises(RigError, match="no vLLM tree"):
        forecast(workshop.layout, primary_pin(workshop.layout), str(tmp_path))


def test_a_password_in_an_address_is_not_shown(workshop: Workshop) -> None:
    with pytest.raises(RigError) as raised:
        forecast(
            workshop.layout, primary_pin(workshop.layout), "https://me:secret@127.0.0.1:9/x.git"
        )
    assert "secret" not in str(raised.value)


def test_the_newest_pin_that_a_patch_applies_to(tmp_path: Path) -> None:
    case = Case("", (*ONE, Patch("0201", _CONTEXT, {"Requires": "0101"})), nothing, {}, None)
    workshop = checkout_of(case, tmp_path / "w")
    (tried,) = bisect_pin(workshop.layout, "0201")
    assert tried.applies
    assert tried.said == "applies, with what it requires: 0101"
    with pytest.raises(RigError, match="no pin has a patch 0999"):
        bisect_pin(workshop.layout, "0999")
