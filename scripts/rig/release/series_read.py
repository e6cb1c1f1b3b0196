"""The series of a release, old or new, as far as a changelog needs it.

Rules for patches grow stricter with time and an old release must stay readable. So this reads the
TOML and the mail headers themselves, and judges nothing.
"""

from __future__ import annotations

import email.parser
import email.policy
import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.series.export import verbatim_patch_id

_STATUS = re.compile(rb"^Upstream-Status:[ \t]*(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class PatchText:
    """One patch as it serves one pin.

    Args:
        path: in the checkout.
        status: its Upstream-Status trailer.
        sha256: of the text.
        change: `git patch-id --verbatim`: the same while only words or line numbers differ.
    """

    number: str
    path: str
    subject: str
    status: str
    sha256: str
    change: str


@dataclass(frozen=True)
class PinnedSeries:
    """One pin.

    Args:
        artifacts: file name on the index -> sha256.
        skip: patch number -> why the pin does not carry it.
        patches: number -> text, in order.
        series: digest of the texts; tree is what they give.
    """

    version: str
    role: str
    artifacts: dict[str, str]
    skip: dict[str, str]
    patches: dict[str, PatchText]
    series: str
    tree: str


def read_pinned_series(layout: Layout, what: str) -> dict[str, PinnedSeries]:
    """Every pin's series, newest pin first, as its lock gives it.

    Args:
        what: whose it is, for errors: a tag, or this checkout.

    Raises:
        RigError: a pin, lock or text is missing, or none of what it must be.
    """
    try:
        found = [_read_pin(layout, path) for path in layout.pins.glob("*.toml")]
    except (OSError, KeyError, TypeError, ValueError) as error:  # TOML and UTF-8 errors are these
        raise RigError(
            f"the series cannot be read: {type(error).__name__}: {error}",
            where=what,
            next_step="look at its patches/pins",
        ) from error
    return {p.version: p for p in sorted(found, key=lambda p: _age(p.version), reverse=True)}


def _age(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"[0-9]+", version))


def _read_pin(layout: Layout, path: Path) -> PinnedSeries:
    pin = tomllib.loads(path.read_text("utf-8"))
    version = str(pin["version"])
    lock = tomllib.loads(layout.lock(version).read_text("utf-8"))
    git = Git(layout.patches)
    texts = [_read_text(layout, version, entry, git) for entry in lock.get("patch", [])]
    wheels = [w for by_arch in pin["wheels"].values() for w in by_arch.values()]
    return PinnedSeries(
        version=version,
        role=str(pin["role"]),
        artifacts={a["name"]: a["sha256"] for a in (pin["sdist"], *wheels)},
        skip={number: str(why) for number, why in pin.get("skip", {}).items()},
        patches={t.number: t for t in texts},
        series=str(lock["series"]),
        tree=str(lock["final"]),
    )


def _read_text(layout: Layout, version: str, entry: dict[str, Any], git: Git) -> PatchText:
    name = str(entry["name"])
    own = layout.patches / version / name
    path = own if own.is_file() else layout.patches / name
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    if digest != entry["sha256"]:
        raise ValueError(f"{name} for vLLM {version} is not the text that its lock names")
    head = email.parser.BytesHeaderParser(policy=email.policy.default).parsebytes(raw)
    subject = " ".join(str(head["Subject"] or "").split()).removeprefix("[PATCH]").strip()
    status = _STATUS.findall(raw.partition(b"\n---\n")[0])
    return PatchText(
        number=name[:4],
        path=layout.shown(path),
        subject=subject or name,
        status=status[-1].decode("utf-8", "replace").strip() if status else "not said",
        sha256=digest,
        change=verbatim_patch_id(raw, git),
    )
