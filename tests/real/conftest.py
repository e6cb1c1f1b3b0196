"""The real series on the real releases, in a folder of its own: your build/ is not touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.layout import Layout, layout_of_this_checkout


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """This checkout's patches and cache, with empty build/ and dist/ folders."""
    ours = layout_of_this_checkout()
    root: Path = tmp_path_factory.mktemp("a checkout")
    (root / "patches").symlink_to(ours.patches)
    return Layout(root=root, cache=ours.cache)
