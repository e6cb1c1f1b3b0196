"""All families: each module in this folder defines one `FAMILY` and is imported when asked for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from tests.towers.family import Family


class _Families(Mapping[str, Family]):
    """Families by name, which is their module's: a tower of one loads no other's code."""

    def __getitem__(self, name: str) -> Family:
        if name not in iter(self):
            raise KeyError(name)
        family: Family = importlib.import_module(f"{__name__}.{name}").FAMILY
        if family.name != name:
            raise ValueError(f"{name}.py defines the family {family.name!r}, not its own")
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(module.name for module in pkgutil.iter_modules(__path__)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


FAMILIES: Mapping[str, Family] = _Families()
