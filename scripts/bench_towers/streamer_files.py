"""Loads the streamer's files from a patched vLLM tree, without the rest of vLLM."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from rig.errors import RigError

_PACKAGE = "vllm.model_executor.offloader.towers"
_MODULES = ("host_limits", "host_memory", "runtime", "schedule", "streamer", "units")


@dataclass(frozen=True)
class StreamerFiles:
    """The streamer's modules, imported.

    Args:
        digest: of their text, so that a figure can be told from one of another version.
    """

    host_memory: ModuleType
    runtime: ModuleType
    schedule: ModuleType
    streamer: ModuleType
    units: ModuleType
    digest: str


def find_towers_folder(tree: Path, towers_folder: Path | None) -> Path:
    """The folder with the streamer's files.

    Args:
        tree: an applied vLLM tree.
        towers_folder: that folder itself, if it was copied out of its tree; `tree` does not count.

    Raises:
        RigError: the files are not there.
    """
    folder = towers_folder or tree.joinpath(*_PACKAGE.split("."))
    if all((folder / f"{name}.py").is_file() for name in _MODULES):
        return folder
    if towers_folder is not None:
        next_step = f"name the folder that holds {', '.join(f'{m}.py' for m in _MODULES)}"
    elif tree.is_dir():
        next_step = "name a tree that carries the streaming patches (02xx): make apply"
    else:
        next_step = "make apply"
    raise RigError("the streamer's files are not there", where=folder, next_step=next_step)


def load_streamer(folder: Path) -> StreamerFiles:
    """Import the streamer's modules under their own names.

    The packages above them are empty here: those of vLLM would import compiled kernels and much
    that a borrowed machine does not have.

    Args:
        folder: as `find_towers_folder` returns it.
    """
    parts = _PACKAGE.split(".")
    for depth in range(1, len(parts)):
        _register_empty_package(".".join(parts[:depth]))
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    if (folder / "__init__.py").is_file():
        spec.loader.exec_module(package)
    found = {name: importlib.import_module(f"{_PACKAGE}.{name}") for name in _MODULES}
    loaded = sorted(name for name in sys.modules if name.startswith(f"{_PACKAGE}."))
    text = b"".join((folder / f"{name.split('.')[-1]}.py").read_bytes() for name in loaded)
    return StreamerFiles(
        host_memory=found["host_memory"],
        runtime=found["runtime"],
        schedule=found["schedule"],
        streamer=found["streamer"],
        units=found["units"],
        digest=hashlib.sha256(text).hexdigest(),
    )


def _register_empty_package(name: str) -> None:
    # With a spec: libraries that look for vllm with find_spec stumble over a module without one.
    module = importlib.util.module_from_spec(ModuleSpec(name, None, is_package=True))
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
