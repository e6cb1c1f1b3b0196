"""The release's folder: filled beside its place, and put there in one step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.download import sha256_of

SUMS = "SHA256SUMS"


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """An empty folder beside the target; it takes the target's place when all went well.

    Raises:
        OSError: it cannot be written.
    """
    part = target.with_name(f".{target.name}.part")
    old = target.with_name(f".{target.name}.old")
    for stale in (part, old):
        shutil.rmtree(stale, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        if target.exists():
            target.rename(old)
        part.rename(target)
    finally:
        for stale in (part, old):
            shutil.rmtree(stale, ignore_errors=True)


def write_sums(folder: Path) -> dict[str, str]:
    """Write SHA256SUMS over all that lies in the folder, as `sha256sum -c` reads it."""
    digests = {p.name: sha256_of(p) for p in sorted(folder.iterdir())}
    text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    (folder / SUMS).write_text(text, "utf-8")
    return digests
