"""A lock that disagrees stops an apply, and says with what."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import tomli_w

from rig.errors import RigError

from .releases import (
    PRIMARY,
    SECOND,
)
from .test_apply import refused
from .workshop import Workshop, run_git

# --- a lock that disagrees ------------------------------------------------------------------


def tampered(workshop: Workshop, change: Callable[[dict[str, Any]], object]) -> RigError:
    """What apply says to a changed lock, with a tree there and without; they must not differ."""
    path = workshop.layout.lock(SECOND)
    right = workshop.apply(SECOND)
    table = tomllib.loads(path.read_text())
    change(table)
    path.write_text(tomli_w.dumps(table))
    head = run_git(right, "rev-parse", "HEAD")
    error = refused(workshop, SECOND)
    assert run_git(right, "rev-parse", "HEAD") == head, "the tree that was there stays"
    shutil.rmtree(right)
    refused(workshop, SECOND)
    assert not right.exists()
    return error


A = "a" * 40


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.update(pristine=A), f"lock says {A}"),
        (lambda t: t.update(final=A), f"lock says {A}"),
        (lambda t: t.update(series="b" * 64), "b" * 64),
        (lambda t: t["patch"][1].update(tree=A), "0201-config-configure.patch gave tree"),
        (lambda t: t["patch"][0].update(sha256="b" * 64), "text of 0101-run-the-engine.patch"),
        (lambda t: t["patch"][0].update(name="0102-x.patch"), "0102-x.patch"),
        (lambda t: t["patch"].pop(), "lock knows"),
        (lambda t: t["patch"][0]["file"][0].update(before=A), "to vllm/engine.py"),
        (lambda t: t["patch"][0]["file"][0].update(after=A), "to vllm/engine.py"),
        (lambda t: t["patch"][0]["file"][0].update(mode_after="100755"), "to vllm/engine.py"),
        (lambda t: t["patch"][0]["file"][0].update(mode_before="100755"), "to vllm/engine.py"),
        (lambda t: t["patch"][0]["file"][0].update(path="vllm/else.py"), "to vllm/else.py"),
        (lambda t: t["patch"][1]["file"].pop(), "0201-config-configure.patch does not do to"),
        (lambda t: t.update(version=PRIMARY), f"the lock is of vLLM {PRIMARY}"),
        (lambda t: t.update(extra=1), "extra: Extra"),
        (lambda t: t.pop("final"), "final: Field required"),
    ],
)
def test_a_changed_lock(
    two_patches: Workshop, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    error = tampered(two_patches, change)
    assert said in str(error)
    assert "0.2.0.lock" in str(error.where)


def test_a_mismatch_shows_both_hunks(two_patches: Workshop) -> None:
    error = tampered(two_patches, lambda t: t["patch"][0]["file"][0].update(after=A))
    detail = str(error.detail)
    written, applied = detail.split("as it was applied:")
    for side in (written, applied):
        assert "-engine_040 = 40\n+engine_040 = 4\n" in side
    assert f"-> 100644 {A}" in applied


@pytest.mark.parametrize("content", [None, b"", b"= 1", b"\xff\xff"])
def test_a_missing_or_damaged_lock(two_patches: Workshop, content: bytes | None) -> None:
    path = two_patches.layout.lock(SECOND)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert "make refresh" in str(refused(two_patches, SECOND).next_step)
