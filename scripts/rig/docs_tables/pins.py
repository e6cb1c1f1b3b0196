"""docs/pins.md: the releases that the series stands on, and their digests."""

from __future__ import annotations

from rig.launch.engine_environment import RAY_VERSION
from rig.layout import Layout
from rig.pins import Pin, read_pins
from rig.revision import read_revision
from rig.series.lock import Lock, read_lock

SHOWN = 12  # digits of a digest: enough to compare by eye; the files hold all of them
_HEAD = """\
# The pins

Made by `./rig docs --write` from `patches/pins/`: do not edit. `+rig.{revision}` is the revision of
wheels built now; Ray {ray} is the version that `serve` asks for. Digests are SHA-256, their first
{shown} digits; all digits are in the pin files, and every download is compared with them. A new
release: [rebase](rebase.md).
"""


def pin_table(layout: Layout) -> str:
    """The page.

    Raises:
        RigError: a pin or its lock cannot be read.
    """
    pins = read_pins(layout)
    head = _HEAD.format(revision=read_revision(layout), ray=RAY_VERSION, shown=SHOWN)
    releases = [
        "| vLLM | role | upstream commit | torch | Python | patches | series | patched tree |",
        "|---|---|---|---|---|---|---|---|",
        *(_release(pin, read_lock(layout, pin.version)) for pin in pins),
    ]
    files = ["| vLLM | file | digest |", "|---|---|---|", *(r for pin in pins for r in _files(pin))]
    skips = [
        f"- {pin.version} does not carry {number}: {why}"
        for pin in pins
        for number, why in pin.skip.items()
    ]
    parts = [head, "## Releases\n", *releases, ""]
    parts += ["## Patches left out\n", *skips, ""] if skips else []
    images = [row for pin in pins for row in _images(pin)] or [
        "None yet: a digest is written into its pin by the first build of an image on it."
    ]
    return "\n".join([*parts, "## Files\n", *files, "", "## Official images\n", *images, ""])


def _release(pin: Pin, lock: Lock) -> str:
    return (
        f"| {pin.version} | {pin.role} | `{pin.commit}` | {pin.torch} | `{pin.python}` "
        f"| {len(lock.patch)} | `{lock.series[:SHOWN]}` | `{lock.final[:SHOWN]}` |"
    )


def _files(pin: Pin) -> list[str]:
    found = [pin.sdist, *(wheel for by_arch in pin.wheels.values() for wheel in by_arch.values())]
    return [f"| {pin.version} | `{file.name}` | `{file.sha256[:SHOWN]}` |" for file in found]


def _images(pin: Pin) -> list[str]:
    if pin.image is None:
        return []
    digests = pin.image.digests.items()
    return [
        f"- {pin.version}: `{pin.image.name}`, {arch} `{digest[:19]}`" for arch, digest in digests
    ]
