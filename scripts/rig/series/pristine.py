"""The untouched release as the first commit of a scratch git repository."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

from rig.download import fetch
from rig.errors import RigError, first_line_of_os_error
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin

PRISTINE_REF = "refs/rig/pristine"
BRANCH = "rig"
# Any fixed moment does: it makes the commit ids the same on every machine.
_AUTHOR = {
    "GIT_AUTHOR_NAME": "vLLM release",
    "GIT_AUTHOR_EMAIL": "vllm-rig@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+0000",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+0000",
}
# A scratch repository can be made again: speed over durability and size.
_FAST = ("-c", "core.looseCompression=1", "-c", "core.fsync=none")


def unpack_release(layout: Layout, pin: Pin, folder: Path) -> None:
    """Unpack the verified sdist so that its files lie directly in `folder`.

    Raises:
        RigError: the download failed, the archive is not one of this release, or no space.
    """
    sdist = fetch(layout, pin.sdist)
    unpacked = folder.with_name(f"{folder.name}.unpack")
    try:
        unpacked.mkdir(parents=True)
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        tops = list(unpacked.iterdir())
        if [t.name for t in tops] != [f"vllm-{pin.version}"]:
            raise RigError(f"the sdist does not hold vllm-{pin.version}/ alone", where=sdist)
        tops[0].rename(folder)
    except tarfile.TarError as error:
        raise RigError(f"the sdist cannot be unpacked: {error}", where=sdist) from error
    except OSError as error:
        raise RigError(
            f"cannot unpack the release: {first_line_of_os_error(error)}",
            where=folder.parent,
            next_step="about 400 MB are needed there; free some and run the same command again",
        ) from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def make_pristine(layout: Layout, pin: Pin, folder: Path, expected_tree: str | None) -> Git:
    """Make a git repository in `folder` whose only commit is the untouched release.

    Args:
        layout: where the cache is.
        pin: the release.
        folder: a path that does not exist yet.
        expected_tree: the tree id that the lock gives; None when there is no lock yet.

    Raises:
        RigError: the tree id differs from the lock's, or see `unpack_release`.
    """
    unpack_release(layout, pin, folder)
    git = Git(folder)
    git.run("init", "--quiet", f"--initial-branch={BRANCH}", "--template=")
    # -f: vLLM's .gitignore matches files of its own sdist (_version.py is one of them).
    git.run(*_FAST, "add", "--all", "--force")
    message = f"vLLM {pin.version}, commit {pin.commit}, as released\n"
    git.run(*_FAST, "commit", "--quiet", "--no-verify", "-m", message, env=_AUTHOR)
    git.run("update-ref", PRISTINE_REF, "HEAD")
    found = git.tree_id()
    if expected_tree is not None and found != expected_tree:
        raise RigError(
            f"the unpacked release has tree {found}, the lock says {expected_tree}",
            where=layout.shown(layout.lock(pin.version)),
            next_step="the sdist's digest was right, so the lock is not: restore it from git",
        )
    require_commit(git, pin)
    return git


def require_commit(git: Git, pin: Pin) -> None:
    """Compare the pin's commit with the one that the release itself gives.

    Raises:
        RigError: they differ.
    """
    text = git.run("show", f"{PRISTINE_REF}:vllm/_version.py").text
    found = re.search(r"^__commit_id__ = commit_id = '(g[0-9a-f]+)'$", text, re.MULTILINE)
    given = found[1].removeprefix("g") if found else "none"
    if not (pin.commit.startswith(given) or given.startswith(pin.commit)):
        raise RigError(
            f"the release says that it was made from commit {given}, the pin says {pin.commit}",
            where=f"vllm/_version.py of {pin.sdist.name}",
            next_step=f"correct `commit` in patches/pins/{pin.version}.toml",
        )
