"""The oldest git that the proofs can rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError
from rig.git import require_git


@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        ("git version 2.39.5", True),
        ("git version 2.50.1 (Apple Git-155)", True),
        ("git version 3.0.0", True),
        ("git version 2.38.9", False),
        ("git version 1.99", False),
        ("something else", False),
    ],
)
def test_an_old_git_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, accepted: bool
) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if accepted:
        require_git()
    else:
        with pytest.raises(RigError, match="git is too old"):
            require_git()


def test_no_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RigError, match="git is not installed"):
        require_git()
