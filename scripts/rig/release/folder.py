"""The release's folder: filled beside its place, and put there in one step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rig.download import sha256_of
from rig.errors import RigError, first_line_of_os_error

SUMS = "SHA256SUMS"


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """An empty folder beside the target; it takes the target's place when all went well.

    One run at a time: the caller holds a lock. Otherwise, or after a kill and the next run, what
    lay at the target before lies there again.

    Args:
        target: `release-<version>`; what runs for other versions left beside it goes as well.

    Raises:
        RigError: the operating system refuses a file, such as on a full disk.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        _tidy(target.parent)
        part.mkdir(parents=True)
        try:
            yield part
            if target.exists():
                target.rename(target.with_name(f".{target.name}.old"))
            part.rename(target)
        except BaseException:
            with suppress(OSError):  # the next run meets it again
                _tidy(target.parent)
            raise
        _tidy(target.parent)
    except OSError as error:
        raise RigError(
            f"cannot write the release: {first_line_of_os_error(error)}",
            where=error.filename or target.parent,
            next_step="make room, or the right to write, and run the same command again: its "
            "wheels lie in dist/, and the largest once more in build/",
        ) from error


def _tidy(dist: Path) -> None:
    """Undo what a run left that did not come to its end."""
    for old in dist.glob(".release-*.old"):
        target = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
        if target.exists():
            shutil.rmtree(old)
        else:  # it ended after the old release went away, and before the new one came
            old.rename(target)
    for part in dist.glob(".release-*.part"):
        shutil.rmtree(part)


def write_sums(folder: Path) -> dict[str, str]:
    """Write SHA256SUMS over all that lies in the folder, as `sha256sum -c` reads it."""
    digests = {p.name: sha256_of(p) for p in sorted(folder.iterdir())}
    text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    (folder / SUMS).write_text(text, "utf-8")
    return digests
