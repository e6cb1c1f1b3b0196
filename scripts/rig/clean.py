"""`rig clean`: remove what can be made again, and nothing that a person made."""

from __future__ import annotations

import shutil
from pathlib import Path

from rig.errors import RigError, first_line_of_os_error
from rig.layout import Layout
from rig.pins import read_pins
from rig.series.apply import edits_in, locked


def clean(layout: Layout) -> list[str]:
    """Remove build/, dist/ and what lies outside for this checkout; says what went or stayed."""
    said = []
    trees = {layout.tree(p.version): p.version for p in read_pins(layout)}
    for folder in (layout.build, layout.dist):
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if ".saved-" in path.name:
                said.append(f"kept     {layout.shown(path)}: an edited tree that was moved aside")
                continue
            version = trees.get(path)
            if version is None:
                said += _remove(layout, path)
                continue
            with locked(layout, version):
                edits = edits_in(path)
                if edits:
                    said.append(f"kept     {layout.shown(path)}: {edits[0]}")
                else:
                    said += _remove(layout, path)
    if layout.outside.exists():
        said += _remove(layout, layout.outside)
    return said or ["nothing to remove"]


def _remove(layout: Layout, path: Path) -> list[str]:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.suffix != ".lock":  # another run may hold it
            path.unlink()
        else:
            return []
    except OSError as error:
        raise RigError(
            f"cannot remove it: {first_line_of_os_error(error)}", where=layout.shown(path)
        ) from error
    return [f"removed  {layout.shown(path)}"]
