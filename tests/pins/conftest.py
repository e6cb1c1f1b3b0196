"""A local package index and a checkout that has never downloaded anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.layout import Layout

from .index_server import Index, serving


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """An empty checkout with an empty cache; both folders have names that shells dislike."""
    made = Layout(root=tmp_path / "a check out", cache=tmp_path / "the cäche")
    made.pins.mkdir(parents=True)
    made.series.write_text("")
    return made


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """A running index that the tools use, as pip would, because PIP_INDEX_URL names it."""
    with serving(Index()) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield running
