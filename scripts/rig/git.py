"""The one place that runs git.

A user's configuration changes what git prints and writes (`diff.noprefix`, `core.autocrlf`,
`format.signOff`, and a dozen more), and inherited `GIT_*` variables do the same
(`GIT_DIFF_OPTS=-u1` shortens every hunk of an export). So git runs here with none of either.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError

# The committer is fixed and the author is the patch's own, so that the same series gives the
# same commit ids on every machine.
COMMITTER_NAME = "vllm-rig"
COMMITTER_EMAIL = "vllm-rig@localhost"

# The first with `git patch-id --verbatim`.
OLDEST_GIT = "2.39"

_PINNED_CONFIG = (
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.quotePath=true",
    "core.fileMode=true",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "init.defaultBranch=rig",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
    "trailer.separators=:",
    "user.useConfigOnly=true",
    "safe.directory=*",
)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without anything that changes what git does."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_PAGER": "cat",
        "GIT_COMMITTER_NAME": COMMITTER_NAME,
        "GIT_COMMITTER_EMAIL": COMMITTER_EMAIL,
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    return env | dict(extra or {})


@dataclass(frozen=True)
class GitResult:
    """What one git command said."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "surrogateescape")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace").strip()


@dataclass(frozen=True)
class Git:
    """git, in one folder."""

    folder: Path

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> GitResult:
        """Run one git command.

        Raises:
            RigError: git is not installed, or it failed and `check` is set.
        """
        command: list[str] = ["git"]
        for setting in _PINNED_CONFIG:
            command += ["-c", setting]
        command += [str(a) for a in arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=clean_environment({**self._only_here(), **(env or {})}),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            if not self.folder.is_dir():
                raise RigError("the folder does not exist", where=self.folder) from error
            raise RigError(
                "git is not installed", next_step=f"install git {OLDEST_GIT} or newer"
            ) from error
        result = GitResult(done.returncode, done.stdout, done.stderr)
        if check and result.code != 0:
            raise RigError(
                f"git {arguments[0]} failed with status {result.code}",
                where=self.folder,
                detail=result.error_text or result.text,
                next_step=advice(result.error_text),
            )
        return result

    def _only_here(self) -> dict[str, str]:
        """Keep git from taking a repository above for one that is missing or damaged here."""
        return {"GIT_CEILING_DIRECTORIES": str(self.folder.absolute().parent)}

    def line(self, *arguments: str | Path) -> str:
        """The single line that a git command prints."""
        return self.run(*arguments).text.strip()

    def lines(self, *arguments: str | Path) -> list[str]:
        """The lines that a git command prints."""
        return self.run(*arguments).text.splitlines()

    def null_separated(self, *arguments: str | Path) -> list[str]:
        """The fields of a git command that was given -z."""
        text = self.run(*arguments).text
        return text.split("\0")[:-1] if text else []

    def tree_id(self, revision: str = "HEAD") -> str:
        """The id of a commit's tree."""
        return self.line("rev-parse", f"{revision}^{{tree}}")

    def blobs(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The contents of blobs, read in one process and checked by git against their ids."""
        wanted = list(dict.fromkeys(ids))
        out = self.run("cat-file", "--batch", stdin="".join(f"{i}\n" for i in wanted).encode())
        contents: dict[str, bytes] = {}
        at = 0
        for blob in wanted:
            end = out.stdout.index(b"\n", at)
            header = out.stdout[at:end].split()
            if len(header) != 3 or header[1] != b"blob":
                raise RigError(f"git has no blob {blob}", where=self.folder)
            size = int(header[2])
            contents[blob] = out.stdout[end + 1 : end + 1 + size]
            at = end + 1 + size + 1
        return contents


def require_git() -> None:
    """Refuse a git that lacks what the proofs need.

    Raises:
        RigError: git is missing or too old.
    """
    said = Git(Path.cwd()).line("version")
    found = re.search(r"(\d+)\.(\d+)", said)
    oldest = tuple(int(n) for n in OLDEST_GIT.split("."))
    if found is None or (int(found[1]), int(found[2])) < oldest:
        raise RigError(
            f"git is too old: {said}",
            where="git version",
            next_step=f"install git {OLDEST_GIT} or newer",
        )


def advice(stderr: str) -> str | None:
    """What to do about a failure of git that is not about what it was asked to do."""
    if "No space left on device" in stderr or "Out of diskspace" in stderr:
        return "free some disk space and run the same command again"
    if ".lock': File exists" in stderr:
        return (
            "another git command works there: wait for it, then run the same command again. "
            "If none does, it was killed: remove the file named above"
        )
    return None


def own_identity(folder: Path) -> dict[str, str] | None:
    """The name and address that a person's own git would commit with there; None without one.

    It is the only thing that is asked of a person's configuration.
    """
    found: dict[str, str] = {}
    for key, name in (("user.name", "NAME"), ("user.email", "EMAIL")):
        asked = subprocess.run(
            ["git", "config", "--get", key], cwd=folder, capture_output=True, check=False
        )
        value = asked.stdout.decode("utf-8", "replace").strip()
        if asked.returncode != 0 or not value:
            return None
        found |= {f"GIT_AUTHOR_{name}": value, f"GIT_COMMITTER_{name}": value}
    return found
