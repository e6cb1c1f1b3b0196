"""Write many files as if at once: what was begun is finished by the next run.

The new contents are put into a folder first, with a list of where each belongs. Once the list
is there, the files are put in their places one by one. A run that is killed before the list is
there has changed nothing; later, the next one writes all of them again, until who filled the
folder removes it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from rig.errors import RigError
from rig.series.lock import replace_file

_LIST = "list.json"


def fill(outbox: Path, root: Path, files: Mapping[Path, bytes | None]) -> None:
    """Prepare the writing of files below `root`; None removes one."""
    shutil.rmtree(outbox, ignore_errors=True)
    outbox.mkdir(parents=True)
    entries: dict[str, str | None] = {}
    for at, (path, content) in enumerate(files.items()):
        name = None
        if content is not None:
            name = f"{at:05d}"
            (outbox / name).write_bytes(content)
        entries[path.relative_to(root).as_posix()] = name
    replace_file(outbox / _LIST, json.dumps(entries, indent=1).encode())


def is_filled(outbox: Path) -> bool:
    """Whether there is something that must be written."""
    return (outbox / _LIST).exists()


def deliver(outbox: Path, root: Path) -> list[str]:
    """Write what was prepared; a line for each file that changed. May be done again.

    Raises:
        RigError: the outbox is damaged.
    """
    try:
        entries = json.loads((outbox / _LIST).read_text("utf-8"))
        files = {
            root / path: None if name is None else (outbox / name).read_bytes()
            for path, name in entries.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        raise RigError(
            f"what was to be written cannot be read: {error}",
            where=outbox,
            next_step="`git status` shows what was written; `git checkout patches/` undoes it",
        ) from error
    said = []
    for path, content in files.items():
        if content is None:
            if path.exists():
                path.unlink()
                said.append(f"removed  {path.relative_to(root)}")
        elif replace_file(path, content):
            said.append(f"written  {path.relative_to(root)}")
    return said
