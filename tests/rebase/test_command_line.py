"""What a person types, and what is said when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.series.workshop import Workshop

from .conftest import checkout_of, read_tree
from .corpus import CASES, UPSTREAM

MOVED = next(c for c in CASES if c.name == "lines are added above")
PROBE = next(c for c in CASES if c.name.startswith("the signature changes"))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return checkout_of(MOVED, tmp_path_factory.mktemp("line") / "w")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a release to carry to"),
        (("0.4.0", "--continue"), "name a release to carry to"),
        (("0.4.0", "--drop", "0101"), "go with --continue"),
        (("--continue",), "no rebase is in progress"),
        (("--abort",), "no rebase is in progress"),
        (("--continue", "--drop", "0101"), "a drop needs a reason"),
        (("0.4.0", "--from", "0.9.9"), "0.9.9"),
        (("7.7.7",), "the package index cannot be reached"),
    ],
)
def test_wrong_words(workshop: Workshop, arguments: tuple[str, ...], said: str) -> None:
    before = read_tree(workshop.root / "patches")
    assert said in workshop.command_line("rebase", *arguments).must_fail()
    assert read_tree(workshop.root / "patches") == before


def test_a_dry_run_with_no_network(workshop: Workshop) -> None:
    done = workshop.command_line("rebase", UPSTREAM, "--dry-run").must_succeed()
    assert "1 patches: 1 moved; 1 hunks moved, 0 files in conflict" in done.stdout


def test_a_release_whose_bytes_changed(tmp_path: Path) -> None:
    workshop = checkout_of(MOVED, tmp_path / "w")
    for sdist in workshop.layout.downloads.rglob(f"vllm-{UPSTREAM}.tar.gz"):
        sdist.write_bytes(sdist.read_bytes() + b"x")
    before = read_tree(workshop.root / "patches")
    workshop.command_line("rebase", UPSTREAM).must_fail()
    assert read_tree(workshop.root / "patches") == before


def test_probes(tmp_path: Path) -> None:
    workshop = checkout_of(PROBE, tmp_path / "w")
    assert "1 hold, 0 do not" in workshop.command_line("probes").must_succeed().stdout
    folder = tmp_path / "tree"
    for path, entry in PROBE.new_release().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(entry.content)
    done = workshop.command_line("probes", "--tree", str(folder))
    assert done.code == 1
    assert "(engine, context, keyword now=True), was (engine, keyword now=True)" in done.stdout
    assert "no vLLM tree" in workshop.command_line("probes", "--tree", "/").must_fail()
    assert "two trees" in (
        workshop.command_line("probes", "--tree", str(folder), "--pin", "0.3.0").must_fail()
    )


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    folder = tmp_path / "tree-ünïcode"
    for path, entry in PROBE.new_release().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(entry.content)
    workshop = checkout_of(PROBE, tmp_path / "w")
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = workshop.command_line("forecast", str(folder), env=env).must_succeed()
    assert "probe failed" in done.stdout
    assert "tree-\\xfcn\\xefcode" in done.stdout
