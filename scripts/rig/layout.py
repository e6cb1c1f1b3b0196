"""Where things lie: one checkout and one cache, nothing else."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from rig.errors import RigError

CACHE_VARIABLE = "VLLM_RIG_CACHE"


@dataclass(frozen=True)
class Layout:
    """The folders of one checkout.

    Args:
        root: the checkout.
        cache: the user's cache, shared by all checkouts: downloads, never build outputs.
    """

    root: Path
    cache: Path

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def pins(self) -> Path:
        return self.patches / "pins"

    @property
    def series(self) -> Path:
        return self.patches / "series"

    @property
    def revision(self) -> Path:
        return self.patches / "revision"

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    @property
    def downloads(self) -> Path:
        return self.cache / "downloads"

    @property
    def outside(self) -> Path:
        """What belongs to this checkout and cannot lie in it."""
        checkout = hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:12]
        return self.cache / "checkouts" / checkout

    def tree(self, version: str) -> Path:
        """The applied git tree of one pin."""
        return self.build / f"vllm-{version}"

    def lock(self, version: str) -> Path:
        """The lock of one pin: blob and tree ids."""
        return self.pins / f"{version}.lock"

    def shown(self, path: Path) -> str:
        """A path as a person in the checkout would type it."""
        try:
            return str(path.relative_to(self.root))
        except ValueError:
            return str(path)

    def typed(self, path: Path) -> str:
        """A path that holds in the folder that the command was called from."""
        return self.shown(path) if Path.cwd() == self.root.resolve() else str(path)


def user_cache() -> Path:
    """The user's cache folder, or the one that VLLM_RIG_CACHE names."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().resolve()
    return Path(platformdirs.user_cache_dir("vllm-rig", appauthor=False))


def layout_of_this_checkout() -> Layout:
    """The layout of the checkout that this file lies in.

    Raises:
        RigError: the package was copied out of its checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "patches" / "series").is_file():
        raise RigError(
            "this copy of the tools does not lie in a vllm-rig checkout",
            where=root,
            next_step="run it from a clone: the patches and pins are part of the tool",
        )
    return Layout(root=root, cache=user_cache())
