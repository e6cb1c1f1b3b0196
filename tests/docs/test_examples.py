"""Figures in the pages that `rig plan` has computed are what it computes now."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest

from .pages import DOCS, ROOT

_CONFIG = "tests/docs/data/dense-32b-awq.json"


@cache
def plan(rig: str, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        ["./rig", "plan", "--config", _CONFIG, "--rig", rig, "--json", *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize(
    ("rig", "layout"), [("1x3090", "TP1"), ("2x3090", "TP2"), ("4x3090", "TP4")]
)
def test_tokens_by_rig(rig: str, layout: str) -> None:
    tokens = plan(rig)["kv_tokens"]
    row = f"| `{rig}` | {layout} | {tokens:,} |"
    assert row in (DOCS / "choosing-flags.md").read_text()


def test_three_cards() -> None:
    page = (DOCS / "three-cards.md").read_text()
    two, three, one = plan("3x3090"), plan("3x3090", "--pp", "3"), plan("1x3090")
    assert f"| TP2, 1 card idle | {two['max_model_len']:,} | {two['kv_tokens']:,} |" in page
    assert f"| PP3 | {three['max_model_len']:,} | {three['kv_tokens']:,} |" in page
    cells = f"{one['max_model_len']:,} | {one['kv_tokens']:,} each"
    assert f"| a server for each card | {cells} |" in page


def test_an_eight_bit_cache() -> None:
    tokens = plan("4x3090", "--kv-cache-dtype", "fp8")["kv_tokens"]
    assert (
        f"{tokens:,} instead of {plan('4x3090')['kv_tokens']:,}"
        in (DOCS / "choosing-flags.md").read_text()
    )
