"""Trees that probes look into: a folder, or a commit of a git repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rig.git import Git


class Source(Protocol):
    """A vLLM tree that files are read from."""

    @property
    def name(self) -> str:
        """How people call it."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, or None if there is none."""

    def holding(self, text: str) -> list[str]:
        """The Python files below vllm/ that hold a text, sorted."""


@dataclass(frozen=True)
class Folder:
    """A tree that lies unpacked in a folder; nothing in it is run."""

    name: str
    folder: Path

    def read(self, path: str) -> bytes | None:
        try:
            return (self.folder / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def holding(self, text: str) -> list[str]:
        wanted = text.encode()
        found = []
        for path in sorted((self.folder / "vllm").rglob("*.py")):
            if path.is_file() and wanted in path.read_bytes():
                found.append(path.relative_to(self.folder).as_posix())
        return found


@dataclass(frozen=True)
class Commit:
    """The tree of a commit."""

    name: str
    git: Git
    revision: str

    def read(self, path: str) -> bytes | None:
        done = self.git.run("cat-file", "blob", f"{self.revision}:{path}", check=False)
        return done.stdout if done.code == 0 else None

    def holding(self, text: str) -> list[str]:
        done = self.git.run(
            "grep", "-l", "-z", "-F", "-e", text, self.revision, "--", "vllm/*.py", check=False
        )
        prefix = f"{self.revision}:"
        return sorted(path.removeprefix(prefix) for path in done.text.split("\0") if path)
