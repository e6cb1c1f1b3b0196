"""The committed `patches/` of some commit, as a checkout of its own at another path."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from rig.git import Git
from rig.layout import Layout


def checkout_patches(layout: Layout, commit: str, folder: Path) -> Layout:
    """Write `patches/` as committed into a folder that does not exist yet.

    Raises:
        RigError: the commit has no `patches/`.
    """
    packed = Git(layout.root).run("archive", "--format=tar", commit, "patches").stdout
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Layout(root=folder, cache=layout.cache)
