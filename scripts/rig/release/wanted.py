"""Which wheels a release holds: `0.33.0:cuda`, `0.32.0:cpu:aarch64`, or `all`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Arch, Artifact, Flavour, Pin, find_pin, primary_pin, read_pins, this_arch

ALL = "all"
_EXAMPLE = "make release WHEELS='0.33.0:cuda 0.32.0:cpu', or WHEELS=all"


@dataclass(frozen=True)
class Wanted:
    """One wheel of a release."""

    pin: Pin
    flavour: Flavour
    arch: Arch

    @property
    def artifact(self) -> Artifact:
        """The release's own wheel that it is made of."""
        return self.pin.wheel(self.flavour, self.arch)

    def __str__(self) -> str:
        return f"{self.pin.version}:{self.flavour}:{self.arch}"


def wanted_wheels(layout: Layout, texts: Sequence[str], arch: Arch | None) -> list[Wanted]:
    """What was asked for, newest pin first; the primary pin for CUDA when nothing was.

    Args:
        texts: `VERSION:FLAVOUR[:ARCH]`, or `all` for whatever the pins have.
        arch: the processor where a text names none; this machine's when None. With `all`, None
            stands for every processor: no wheel needs a machine of its own to be made.

    Raises:
        RigError: a text is not of that form, comes twice, or the pin has no such wheel.
    """
    if not texts:
        found = [Wanted(primary_pin(layout), Flavour.CUDA, arch or this_arch())]
    elif ALL in texts:
        if len(texts) > 1:
            raise RigError(
                "`all` goes with no other wheel", where=" ".join(texts), next_step=_EXAMPLE
            )
        found = [
            Wanted(pin, flavour, processor)
            for pin in read_pins(layout)
            for flavour in Flavour
            for processor in pin.wheels.get(flavour, {})
            if arch in (None, processor)
        ]
    else:
        found = [_one(layout, text, arch or this_arch()) for text in texts]
    twice = sorted({str(w) for w in found if found.count(w) > 1})
    if twice:
        raise RigError("a wheel is asked for twice", where=", ".join(twice))
    if not found:
        raise RigError(f"no pin has a wheel for {arch}", where=layout.shown(layout.pins))
    for wanted in found:
        wanted.pin.wheel(wanted.flavour, wanted.arch)
    order = [p.version for p in read_pins(layout)]
    return sorted(found, key=lambda w: (order.index(w.pin.version), w.flavour, w.arch))


def _one(layout: Layout, text: str, arch: Arch) -> Wanted:
    version, *rest = text.split(":")
    if len(rest) not in (1, 2):
        raise RigError("a wheel is VERSION:FLAVOUR[:ARCH]", where=text, next_step=_EXAMPLE)
    pin = find_pin(layout, version)
    try:
        return Wanted(pin, Flavour(rest[0]), Arch(rest[1]) if rest[1:] else arch)
    except ValueError as error:
        raise RigError(
            str(error).replace(" valid", " known"),
            where=text,
            next_step=f"flavours: {', '.join(Flavour)}; processors: {', '.join(Arch)}",
        ) from error
