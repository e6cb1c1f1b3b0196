"""Stand-ins for packages that model code imports and that no tower needs to compute."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tower_anchors.stubs import nothing

OPTIONAL = ("torchaudio", "torchcodec", "timm", "terratorch", "librosa", "soundfile", "open_clip")
"""For reading sound, or for one model: an engine for tests is built without them."""


class _Absent(ModuleType):
    """A module in which any name is to be found."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package: its modules can be imported, too

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in OPTIONAL:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""


@contextmanager
def absent_packages() -> Iterator[list[str]]:
    """While this lasts, packages that are not there can be imported; gives those that were.

    They are forgotten afterwards: nobody else shall take them for the real ones.
    """
    finder = _Finder()
    before = set(sys.modules)
    used: list[str] = []
    sys.meta_path.append(finder)  # last: a package that is there is found before
    try:
        yield used
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if isinstance(sys.modules[name], _Absent):
                used.append(name)
                del sys.modules[name]
