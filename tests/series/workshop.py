"""A whole fabricated checkout: small releases, pins, a warm cache, and hands that commit.

Nothing here touches the network. A person's own git does the edits, not the tools' wrapper.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from rig.layout import Layout
from rig.pins import find_pin
from rig.series.apply import apply
from rig.series.pristine import make_pristine
from rig.series.refresh import refresh
from rig.series.verify import verify

from .releases import (
    PRIMARY,
    SECOND,
    Entry,
    Tree,
    message,
    pin_table,
    release_files,
    sdist_bytes,
)

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
Running = subprocess.Popen[bytes]
AUTHOR = "A. Person <person@example.org>"
DATE = "2026-02-03T04:05:06+0100"


class Workshop:
    """A checkout with pins, releases in a warm cache, and nothing applied yet."""

    def __init__(
        self,
        folder: Path,
        releases: Mapping[str, Tree] | None = None,
        *,
        cache: Path | None = None,
    ) -> None:
        self.attach(folder, cache)
        self.layout.pins.mkdir(parents=True)
        self.layout.series.write_text("# The series of a fabricated checkout.\n")
        self.layout.revision.write_text("1\n")
        if releases is None:
            releases = {v: release_files(v) for v in (PRIMARY, SECOND)}
        for at, (version, files) in enumerate(releases.items()):
            self.add_release(version, files, "secondary" if at else "primary")

    def attach(self, folder: Path, cache: Path | None = None) -> None:
        """Take the checkout that lies in `folder`."""
        self.root = folder / "checkout"
        self.cache = cache or folder / "cache"
        self.layout = Layout(root=self.root, cache=self.cache)

    def add_release(self, version: str, files: Tree, role: str = "secondary") -> None:
        """Pin a release and put its sdist into the cache."""
        packed = sdist_bytes(version, files)
        digest = hashlib.sha256(packed).hexdigest()
        self.write_pin(pin_table(version, role, digest))
        place = self.layout.downloads / digest / f"vllm-{version}.tar.gz"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(packed)

    def write_pin(self, table: dict[str, object]) -> Path:
        path = self.layout.pins / f"{table['version']}.toml"
        path.write_text(tomli_w.dumps(table))
        return path

    def skip(self, version: str, number: str, reason: str) -> None:
        """Let a pin leave out a patch."""
        path = self.layout.pins / f"{version}.toml"
        path.write_text(f'{path.read_text()}\n[skip]\n{number} = "{reason}"\n')

    # What the tools do, called as the command line calls them.

    def apply(self, version: str = PRIMARY, *, discard: bool = False) -> Path:
        return apply(self.layout, find_pin(self.layout, version), discard=discard).folder

    def refresh(self, version: str | None = None) -> list[str]:
        return refresh(self.layout, version)

    def verify(self, *versions: str) -> list[str]:
        return verify(self.layout, list(versions) or None, require_quilt=False)

    def tree(self, version: str = PRIMARY) -> Path:
        return self.layout.tree(version)

    def git(self, *arguments: str, version: str = PRIMARY, stdin: bytes | None = None) -> str:
        """A person's own git in a tree; returns what it printed."""
        return run_git(self.tree(version), *arguments, stdin=stdin)

    def write(self, path: str, content: bytes | str | Entry | None, version: str = PRIMARY) -> Path:
        """Write a file of a tree, or delete it; returns its path."""
        write_entry(self.tree(version) / path, content)
        return self.tree(version) / path

    def replace(self, path: str, old: str, new: str, version: str = PRIMARY) -> Path:
        """Replace a text that occurs once in a file; returns its path."""
        place = self.tree(version) / path
        content = place.read_bytes()
        assert content.count(old.encode()) == 1, f"{old!r} is not once in {path}"
        place.write_bytes(content.replace(old.encode(), new.encode()))
        return place

    def commit(self, full_message: str, version: str = PRIMARY, author: str = AUTHOR) -> str:
        """Commit all that changed in a tree; returns the commit."""
        self.git("add", "--all", "--force", version=version)
        self.git(
            "commit", "--quiet", "--allow-empty", "--cleanup=verbatim", f"--author={author}",
            f"--date={DATE}", "--file=-", version=version, stdin=full_message.encode(),
        )  # fmt: skip
        return self.git("rev-parse", "HEAD", version=version).strip()

    def patch(self, number: str, subject: str, *edits: tuple[str, str, str]) -> str:
        """Commit one patch to the primary tree from (path, old text, new text) edits."""
        for path, old, new in edits:
            self.replace(path, old, new)
        return self.commit(message(number, subject))

    def apply_unpatched(self, version: str) -> Path:
        """The untouched release as a git tree, beside the others."""
        folder = self.layout.build / f"untouched-{version}"
        make_pristine(self.layout, find_pin(self.layout, version), folder, None)
        return folder

    def start(self) -> Path:
        """Locks for an empty series, and the primary tree applied."""
        self.refresh()
        return self.apply()

    def with_two_patches(self) -> Workshop:
        """A refreshed series of 0101 (engine) and 0201 (config and its test)."""
        self.start()
        self.patch(
            "0101", "Run the engine", ("vllm/engine.py", "engine_040 = 40", "engine_040 = 4")
        )
        self.write("tests/test_config.py", "def test_config():\n    assert True\n")
        self.patch("0201", "[Config] Configure", ("vllm/config.py", "config_005 = 5", "c_5 = 55"))
        self.refresh()
        return self

    def patch_files(self) -> dict[str, bytes]:
        """Every file under patches/ but the pins, by path."""
        return {
            str(p.relative_to(self.layout.patches)): p.read_bytes()
            for p in sorted(self.layout.patches.rglob("*"))
            if p.is_file() and p.suffix != ".toml"
        }

    def leftovers(self) -> list[str]:
        """What lies in build/ besides trees, trees that were kept, and lock files."""
        found = [p.name for p in self.layout.build.iterdir()] if self.layout.build.exists() else []
        return sorted(
            n for n in found if not n.startswith("vllm-") and not n.endswith(".lock")
        ) + sorted(str(p) for p in self.layout.patches.rglob(".*"))

    def saved(self, version: str = PRIMARY) -> list[Path]:
        """Trees that were moved aside."""
        return sorted(self.layout.build.glob(f"vllm-{version}.saved-*"))

    # The command line, as a process of its own.

    def command_line(self, *arguments: str, env: Mapping[str, str] | None = None) -> Command:
        """Run `rig` in this checkout as a person would."""
        with self.started(*arguments, env=env) as child:
            out, err = child.communicate()
        return Command(child.returncode, out.decode(), err.decode())

    def started(self, *arguments: str, env: Mapping[str, str] | None = None) -> Running:
        """Start `rig` in a process group of its own."""
        scripts = self.root / "scripts"
        if not scripts.exists():
            shutil.copytree(
                SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__", "wheel", "launch")
            )
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environment |= {
            "PYTHONPATH": str(scripts),
            "VLLM_RIG_CACHE": str(self.cache),
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple/",
            "COLUMNS": "200",
            **(env or {}),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "rig", *arguments],
            env=environment, cwd=self.root, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@dataclass(frozen=True)
class Command:
    """What a command line run printed."""

    code: int
    stdout: str
    stderr: str

    def must_succeed(self) -> Command:
        assert self.code == 0, self.stderr
        return self

    def must_fail(self) -> str:
        """The error text of a run that failed as a person expects: no traceback."""
        assert self.code == 1, (self.code, self.stdout, self.stderr)
        assert "Traceback" not in self.stderr
        assert "error: " in self.stderr
        return self.stderr


def run_git(folder: Path, *arguments: str, stdin: bytes | None = None) -> str:
    """git with a person's name and no other settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "Somebody",
        "GIT_AUTHOR_EMAIL": "somebody@example.org",
        "GIT_COMMITTER_NAME": "Somebody",
        "GIT_COMMITTER_EMAIL": "somebody@example.org",
        "GIT_EDITOR": "true",
    }
    command = ["git", "-c", "core.fsync=none", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=env, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, f"git {arguments}: {done.stderr.decode(errors='replace')}"
    return done.stdout.decode("utf-8", "surrogateescape")


def write_entry(place: Path, content: bytes | str | Entry | None) -> None:
    """Write one file, symbolic link or executable; None deletes it."""
    if place.is_symlink() or place.exists():
        place.unlink()
    if content is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        content = Entry(content)
    if content.mode == "120000":
        place.symlink_to(content.content.decode())
        return
    place.write_bytes(content.content)
    place.chmod(int(content.mode[-3:], 8))


def in_child(work: Callable[[], object], *, kill_after: float | None = None) -> int:
    """Do `work` in a forked process and return its exit status.

    Args:
        work: what to do; an exception makes the status 1.
        kill_after: seconds after which the process, and only it, is killed with SIGKILL.

    Returns:
        0 when the work was done, 1 when it raised, -9 when it was killed.
    """
    child = _fork(work)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_children(*works: Callable[[], object]) -> list[int]:
    """Do several things at once, each in its own process; returns their exit statuses."""
    children = [_fork(work) for work in works]
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        work()
        code = 0
    finally:
        os._exit(code)
