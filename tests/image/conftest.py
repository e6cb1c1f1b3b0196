"""Fixtures of the image tests."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rig.layout import Layout, layout_of_this_checkout

from ..wheel.wheel_fabric import Fabric
from .buildah import Buildah, open_storage, why_not

# A folder whose images are kept and used again: a second run takes a minute.
KEPT = "RIG_TEST_BUILDAH"


@pytest.fixture(scope="session")
def checkout() -> Layout:
    """This checkout."""
    return layout_of_this_checkout()


@pytest.fixture(scope="session")
def docker(checkout: Layout) -> Path:
    """The folder with what images are made of."""
    return checkout.root / "docker"


@pytest.fixture(scope="session")
def lay_wheel(docker: Path) -> ModuleType:
    """docker/lay_wheel.py, which is run by path."""
    spec = importlib.util.spec_from_file_location("lay_wheel", docker / "lay_wheel.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    """A fabricated release and series."""
    return Fabric(tmp_path / "check out")


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    if reason := why_not():
        pytest.skip(reason)
    kept = os.environ.get(KEPT)
    opened = open_storage(Path(kept) if kept else tmp_path_factory.mktemp("buildah"))
    yield opened
    if not kept:
        opened.clear()
