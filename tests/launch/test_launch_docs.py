"""docs/launch.md names every option of ours, every status and everything that is decided."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rig.launch import supervise
from rig.launch.command_line import HELP

from .rules import ROWS

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Said by --help alone: they decide nothing.
_PLAIN = {"--python", "--help", "--log-folder", "--ready-timeout", "--allow-open-sockets"}
_PLAIN |= {"--health-failures"}


@pytest.fixture(scope="module")
def text() -> str:
    return (DOCS / "launch.md").read_text()


def test_our_options_are_told(text: str) -> None:
    ours = set(re.findall(r"^  (?:-h, )?(--[\w-]+)", HELP, re.MULTILINE))
    assert len(ours) > 10
    assert {option for option in ours - _PLAIN if option not in text} == set()


def test_every_status_is_told(text: str) -> None:
    codes = {supervise.STOPPED, supervise.FAILED, supervise.USAGE}
    codes |= {supervise.UNFIT, supervise.TOO_LARGE, supervise.LOST}
    told = {int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    assert told == codes
    assert all(f"{code} " in HELP.partition("exit status:")[2] for code in codes)


def test_every_variable_of_the_rules_is_told(text: str) -> None:
    names = {name for row in ROWS for name in row.env if not name.startswith(("RAY_", "HF_"))}
    assert {name for name in names - {"VLLM_CPU_KVCACHE_SPACE"} if name not in text} == set()
