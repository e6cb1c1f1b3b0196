"""Fabricated checkouts that can be released."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shop import Shop, copied


@pytest.fixture(scope="session")
def _shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "w"
    Shop(folder).with_history()
    return folder


@pytest.fixture
def shop(_shop: Path, tmp_path: Path) -> Shop:
    """Two pins, two patches, revision 1, one commit, no tag; the primary tree is applied."""
    return copied(_shop, tmp_path / "w")
