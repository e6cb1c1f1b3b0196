"""LICENSE is the Apache License as its authors wrote it; NOTICE says whose the other lines are."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of the text at the licence's own site, without the empty line that it begins with.
APACHE_2 = "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"


def test_the_licence_is_unmodified() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


def test_the_project_says_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"


def test_the_notice_names_vllm() -> None:
    notice = (ROOT / "NOTICE").read_text()
    assert "Copyright contributors to the vLLM project" in notice
    assert "Apache License, Version 2.0" in notice


def test_no_patch_takes_a_notice_away() -> None:
    """The licence wants the notices of the changed files kept."""
    removed = [
        (path.name, line)
        for path in sorted((ROOT / "patches").rglob("*.patch"))
        for line in path.read_text("utf-8").splitlines()
        if re.match(r"-(?!-- ).*(copyright|spdx-|licen[sc]ed under)", line, re.IGNORECASE)
    ]
    assert removed == []
