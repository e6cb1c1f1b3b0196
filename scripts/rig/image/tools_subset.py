"""The packages that the tools need to run, out of requirements/tools.txt. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from rig.errors import RigError

# What the modules that run inside an image import; checks, tests and formatters stay outside.
RUNTIME = (
    "filelock",
    "huggingface-hub",
    "nvidia-ml-py",
    "packaging",
    "platformdirs",
    "pydantic",
    "requests",
    "rich",
    "tomli-w",
    "typer",
    "unidiff",
)
_BLOCK = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==")


def subset(text: str, wanted: Collection[str] = RUNTIME) -> str:
    """The blocks of some packages and of all that they need, with their digests, unchanged.

    Args:
        text: a requirements file whose blocks say "# via" whom they came.

    Raises:
        RigError: a wanted package is not in it.
    """
    blocks = _blocks(text)
    lacking = sorted(set(wanted) - blocks.keys())
    if lacking:
        raise RigError(
            f"the tools' requirements do not hold {', '.join(lacking)}",
            where="requirements/tools.txt",
            next_step="add it to requirements/tools.in and renew tools.txt",
        )
    kept = set(wanted)
    while more := {
        name for name, block in blocks.items() if name not in kept and kept & _asked_by(block)
    }:
        kept |= more
    return "".join(block for name, block in blocks.items() if name in kept)


def _blocks(text: str) -> dict[str, str]:
    blocks: dict[str, str] = {}
    name = None
    for line in text.splitlines(keepends=True):
        if found := _BLOCK.match(line):
            name = found["name"]
            blocks[name] = ""
        if name is not None:
            blocks[name] += line
    return blocks


def _asked_by(block: str) -> set[str]:
    """The packages that a block's "# via" comments name."""
    comments = block.rpartition("# via")[2] if "# via" in block else ""
    return {word for line in comments.splitlines() for word in line.strip("# ").split()[:1]}
