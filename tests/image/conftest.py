"""Fixtures of the image tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rig.layout import Layout, layout_of_this_checkout

from ..wheel.wheel_fabric import Fabric


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
