"""Fixtures of the wheel tests: a fabricated release, small but made of real git and real zip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .wheel_fabric import Fabric


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    """A release and a checkout in a folder whose name has a space."""
    return Fabric(tmp_path / "check out")


@pytest.fixture
def new_fabric(tmp_path: Path) -> Callable[[str], Fabric]:
    """Further releases and checkouts, each in a folder of its own."""
    return lambda name: Fabric(tmp_path / name)
