"""Tiny models with seeded random weights, made on the spot as Hugging Face folders.

Add an architecture by writing a module with `build(folder, seed)` and naming it in BUILDERS.
The same seed gives the same bytes under the same versions of torch and transformers.

The builders run in the engine's environment, which has torch and transformers and none of the
tools' own packages:

    PYTHONPATH=scripts build/engine-<version>-cpu/bin/python -m rig.rehearsal.tiny_models --help
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

from rig.errors import RigError

# Architecture -> the module here that builds it; imported only when asked for.
BUILDERS = {"qwen3-vl": "qwen3_vl"}


def build(architecture: str, folder: Path, seed: int) -> str:
    """Write a model into an empty or new folder; returns the digest of what was written.

    Raises:
        RigError: the architecture is unknown, or the folder holds something already.
    """
    module = BUILDERS.get(architecture)
    if module is None:
        raise RigError(
            f"there is no tiny model of {architecture}",
            next_step=f"these can be built: {', '.join(sorted(BUILDERS))}",
        )
    if folder.exists() and any(folder.iterdir()):
        raise RigError("the folder for the model is not empty", where=folder)
    folder.mkdir(parents=True, exist_ok=True)
    importlib.import_module(f"{__name__}.{module}").build(folder, seed)
    return digest_of(folder)


def digest_of(folder: Path) -> str:
    """SHA-256 over the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()
