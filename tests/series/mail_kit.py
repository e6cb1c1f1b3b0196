"""Patch mails of two small files, right and wrong ones, and the tools that read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.git import Git
from rig.series.mail import PatchMail, parse_mail

from .releases import trailers
from .workshop import AUTHOR, run_git

NAME = "0101-change-one.patch"
HEAD = (
    "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
    f"From: {AUTHOR}\n"
    "Date: Tue, 3 Feb 2026 04:05:06 +0100\n"
    "Subject: [PATCH] Change one\n"
)
STAT = " one.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n"
# A diff of another file, as somebody quotes it in a message.
QUOTED = "--- a/victim.py\n+++ b/victim.py\n@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n+b = 666\n c = 3\n"

quilt_only = pytest.mark.skipif(shutil.which("quilt") is None, reason="quilt is not installed")


def mail(
    diff: str,
    body: str = "Why it is so.",
    *,
    head: str = HEAD,
    trailer_text: str | None = None,
    stat: str = STAT,
) -> bytes:
    """A mail of this body; the trailers are right unless given."""
    tail = trailers("0101") if trailer_text is None else trailer_text
    return f"{head}\n{body}\n\n{tail}\n---\n{stat}\n{diff}".encode()


def parse(raw: bytes, name: str = NAME) -> PatchMail:
    return parse_mail(name, raw, Git(Path("/")))


def refused(raw: bytes, name: str = NAME) -> str:
    with pytest.raises(RigError) as caught:
        parse(raw, name)
    assert caught.value.where == name
    assert caught.value.next_step
    return str(caught.value)


def am(ground: Path, raw: bytes) -> None:
    run_git(ground, "am", "--quiet", "--keep-cr", stdin=raw)


def quilt(ground: Path, raw: bytes) -> int:
    """`quilt push -a --fuzz=0` as the packagers of distributions run it; its exit status."""
    (ground / "patches").mkdir()
    (ground / "patches" / NAME).write_bytes(raw)
    (ground / "patches" / "series").write_text(f"{NAME}\n")
    command = ["quilt", "--quiltrc", "/dev/null", "push", "-a", "--fuzz=0"]
    return subprocess.run(command, cwd=ground, capture_output=True, check=False).returncode
