"""What a verdict depends on: when one of these parts changes, nothing is known any more."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rig.box.facts import Box, Card
from rig.errors import RigError

UNKNOWN = "unknown"
# Metadata only: importing torch takes seconds. NCCL's package carries CUDA's version in its name.
_DESCRIBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.metadata, json
found = {}
for package in importlib.metadata.distributions():
    name = (package.metadata["Name"] or "").lower().replace("_", "-")
    if name in ("torch", "vllm", "flashinfer-python"):
        found[name] = package.version
    elif name.startswith("nvidia-nccl"):
        found["nccl"] = package.version
print(json.dumps(found))
"""
PACKAGES = ("torch", "nccl", "vllm", "flashinfer-python")


def packages_of(python: Path) -> dict[str, str]:
    """The versions of torch, NCCL, vLLM and FlashInfer beside an interpreter (about 0.1 s).

    A package that is not there is "none".

    Raises:
        RigError: the interpreter does not run.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [python, "-c", _DESCRIBE],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
        said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise RigError(
            "this is no working Python",
            where=python,
            next_step="name the engine's: --python /path/to/environment/bin/python",
            detail=getattr(error, "stderr", None),
        ) from error
    return {name: said.get(name, "none") for name in PACKAGES}


def key_parts(box: Box, packages: Mapping[str, str]) -> dict[str, str]:
    """All parts by name, what is not known included as such."""
    parts: dict[str, str] = {}
    for card in box.cards or ():
        parts[f"card {card.index}"] = f"{card.uuid or UNKNOWN} at {card.bus_id}"
        parts[f"link of card {card.index}"] = _link(card)
    parts["paths"] = _paths(box)
    host = box.host
    parts["driver"] = host.driver_version or UNKNOWN
    parts["kernel"] = host.kernel or UNKNOWN
    parts["IOMMU"] = host.iommu or UNKNOWN
    parts["ACS"] = _acs(box)
    return parts | {name: packages[name] for name in PACKAGES}


def _link(card: Card) -> str:
    link = card.link
    values = (
        ("card x", link.width_max),
        ("gen ", link.generation_max),
        ("slot x", link.slot_width_max),
        ("gen ", link.slot_generation_max),
    )
    return ", ".join(f"{name}{UNKNOWN if v is None else v}" for name, v in values)


def _paths(box: Box) -> str:
    """How the cards are joined: a bridge of NVLink that comes or goes is another way of the data,
    and a grant that is withdrawn turns it into a copy through host memory."""
    if box.pairs is None:
        return UNKNOWN
    return "; ".join(
        f"{pair.first}-{pair.second} {pair.level or UNKNOWN}{pair.nvlinks or ''}, "
        f"P2P {pair.p2p or UNKNOWN}"
        for pair in box.pairs
    )


def _acs(box: Box) -> str:
    if box.bridges is None:
        return UNKNOWN
    words = {True: "redirects", False: "does not redirect", None: UNKNOWN}
    return "; ".join(f"{b.bus_id} {words[b.acs_redirects]}" for b in box.bridges) or "no bridges"


def key_of(parts: Mapping[str, str]) -> str:
    """One digest of all parts."""
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """One sentence for each part that is another one now."""
    said = []
    for name in sorted(set(old) | set(new)):
        before, now = old.get(name, "not there"), new.get(name, "not there")
        if before != now:
            said.append(f"{name} was {before}, is {now}")
    return said


def cards_digest(box: Box) -> str:
    """Names the cards, wherever they are plugged in: one stored verdict for each set of them."""
    names = sorted(card.uuid or card.bus_id for card in box.cards or ())
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
