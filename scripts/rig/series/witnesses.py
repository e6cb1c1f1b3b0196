"""Independent witnesses: other programs that must make the same tree from the same patches."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rig.errors import RigError
from rig.git import Git, clean_environment
from rig.series.mail import PatchMail
from rig.series.pristine import PRISTINE_REF

_QUILT_FOLDER = ".quilt-pc"


def find_quilt() -> str | None:
    """Where quilt is, if this machine has it."""
    return shutil.which("quilt")


def tree_by_am(git: Git, mails: Sequence[PatchMail]) -> str:
    """The tree that plain `git am` gives on the untouched release, one file at a time."""
    _back_to_release(git)
    with tempfile.TemporaryDirectory(prefix=".am-", dir=git.folder.parent) as folder:
        for mail in mails:
            path = Path(folder) / mail.name
            path.write_bytes(mail.raw)
            done = git.run("am", "--quiet", "--keep-cr", path, check=False)
            if done.code != 0:
                git.run("am", "--abort", check=False)
                raise RigError(f"git am refuses {mail.name}", detail=done.error_text)
    return git.tree_id()


def tree_by_apply(git: Git, mails: Sequence[PatchMail]) -> str:
    """The tree that `git apply` gives on the untouched release."""
    _back_to_release(git)
    for mail in mails:
        done = git.run("apply", "--index", "--whitespace=nowarn", "-", stdin=mail.raw, check=False)
        if done.code != 0:
            raise RigError(f"git apply refuses {mail.name}", detail=done.error_text)
    return git.line("write-tree")


def tree_by_quilt(git: Git, mails: Sequence[PatchMail], quilt: str) -> str:
    """The tree that `quilt push -a --fuzz=0` gives on the untouched release."""
    _back_to_release(git)
    if not mails:
        return git.line("write-tree")
    with tempfile.TemporaryDirectory(prefix=".quilt-", dir=git.folder.parent) as folder:
        patches = Path(folder)
        for mail in mails:
            (patches / mail.name).write_bytes(mail.raw)
        (patches / "series").write_text("".join(f"{m.name}\n" for m in mails))
        env = {k: v for k, v in clean_environment().items() if not k.startswith("QUILT")}
        # Relative, since quilt does not quote them, and the path here may hold a blank; and
        # its own folder within the tree, since GNU patch renames from there.
        env |= {
            "QUILT_PATCHES": os.path.relpath(folder, git.folder),
            "QUILT_PC": _QUILT_FOLDER,
            "QUILT_SERIES": "series",
        }
        done = subprocess.run(
            [quilt, "--quiltrc", os.devnull, "push", "-a", "--fuzz=0"],
            cwd=git.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        raise RigError("quilt push --fuzz=0 refuses the series", detail=said[-3000:])
    shutil.rmtree(git.folder / _QUILT_FOLDER)
    git.run("add", "--all", "--force")
    return git.line("write-tree")


def _back_to_release(git: Git) -> None:
    git.run("reset", "--quiet", "--hard", PRISTINE_REF)
    git.run("clean", "-qffdx")
