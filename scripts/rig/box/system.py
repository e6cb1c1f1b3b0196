"""Where a system is looked at: its files, its environment. Tests put another tree in its place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ReadFree = Callable[[Path], tuple[int, int] | None]


def size_and_free(folder: Path) -> tuple[int, int] | None:
    """The size of a file system and what a plain user may still write to it, in bytes."""
    try:
        told = os.statvfs(folder)
    except OSError:
        return None
    return told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize


@dataclass(frozen=True)
class System:
    """A machine as this process sees it. Nothing here raises for what is missing.

    Args:
        root: what "/" is: /proc, /sys and the rest are read below it.
        environment: the variables of this process.
        size_and_free: reads the size and free bytes of a file system.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    size_and_free: ReadFree = size_and_free

    def path(self, absolute: str) -> Path:
        """A path of the system, e.g. "/proc/meminfo"."""
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str | Path) -> str | None:
        """A file's text, or None if it cannot be read. Odd bytes become U+FFFD."""
        path = absolute if isinstance(absolute, Path) else self.path(absolute)
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def names(self, absolute: str) -> tuple[str, ...] | None:
        """The names in a folder, sorted, or None if it cannot be listed."""
        try:
            return tuple(sorted(entry.name for entry in self.path(absolute).iterdir()))
        except (OSError, ValueError):
            return None

    def exists(self, absolute: str) -> bool:
        try:
            return self.path(absolute).exists()
        except OSError:
            return False

    def processes(self) -> Iterator[int]:
        """The numbers of the processes that can be seen."""
        for name in self.names("/proc") or ():
            with contextlib.suppress(ValueError):
                yield int(name)


def whole_number(text: str | None, base: int = 10) -> int | None:
    """A number, or None for anything else."""
    try:
        return int((text or "").strip(), base)
    except ValueError:
        return None


def numbers_of_list(text: str | None) -> tuple[int, ...]:
    """The numbers of a kernel list such as "0-3,8". What is no number is left out."""
    found: list[int] = []
    for part in (text or "").strip().split(","):
        first, _, last = part.partition("-")
        start = whole_number(first)
        end = whole_number(last) if last else start
        if start is not None and end is not None and 0 <= end - start < 65536:
            found += range(start, end + 1)
    return tuple(found)
