# mypy: disable-error-code="import-not-found"
"""Lets torchvision be imported beside a torch that has no CUDA.

The torchvision wheels of the package index link CUDA. Beside a CPU build of torch their compiled
part cannot be loaded, so the schemas of `torchvision::nms` and `torchvision::qnms` are missing,
and `import torchvision` dies as it registers their fake kernels. The image processors of
transformers need only the part of torchvision that is Python. So the two schemas are defined
here, without kernels: a call of either op still raises, as it should.

This file is copied into the engine's environment and installed from a `.pth` file, so that
every process has it, Ray's workers too. It must stay free of imports that cost time: torch is
touched only once torchvision is. With a CUDA build of torch, or a torchvision that does load,
nothing is changed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# The module that loads the compiled part; `torchvision/__init__.py` imports it before the one
# that registers fake kernels, and says that this order matters.
EXTENSION = "torchvision.extension"
SCHEMAS = tuple(
    f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for op in ("nms", "qnms")
)
PTH_LINE = "import rig_torchvision_shim; rig_torchvision_shim.install()\n"

_kept: list[Any] = []  # torch drops a library's schemas when the object is collected


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as Python would, and adds one step after it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != EXTENSION:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            define_missing_schemas(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def define_missing_schemas(extension: ModuleType) -> bool:
    """Define both schemas if torch has no CUDA and torchvision's compiled part did not load."""
    import torch

    if torch.version.cuda is not None or extension._has_ops():
        return False
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _kept.append(library)
    return True


def install() -> None:
    """Watch for torchvision in this process; once is enough, more does no harm."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
