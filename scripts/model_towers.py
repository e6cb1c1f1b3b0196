"""What streaming a tower costs on the usual links: a model, nothing here is measured.

    ./rig --python scripts/model_towers.py [--svg docs/streaming-model.svg]

The tower: 27 equal blocks of 29 MiB. Compute: 296 ms at 8192 patches, as published for
one RTX 3090, taken to be in proportion to the patches. The links: the middle of what others have
measured for copies from pinned memory over 16 lanes; 8 and 4 lanes are taken to have a half and a
quarter of that. Launches take no time, nothing else uses the bus, and copies and compute do
not slow each other down. On a real card attention makes large images dearer than that and small
ones cheaper, so that copies are hidden from somewhat more patches on than here.

For streaming, the times follow the recurrence that the patches' tests prove of the real schedule,
on a virtual device: a copy starts when the bus and a slot are free, a block when it is there and
the one before has computed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from rig.errors import RigError

BLOCKS = 27
BLOCK_MIB = 29
MS_PER_PATCH = 296 / 8192
X16_GB_PER_S = {"5.0": 53.5, "4.0": 25.0, "3.0": 12.0}
LANES = (16, 8, 4)
PATCHES = tuple(2**n for n in range(6, 15))


@dataclass(frozen=True)
class Link:
    """A PCIe link.

    Args:
        name: generation and lanes.
        gb_per_s: billions of bytes that it copies to the device in a second.
    """

    name: str
    gb_per_s: float

    def copy_ms(self) -> float:
        """Milliseconds that the copy of one block takes."""
        return BLOCK_MIB * 2**20 / (self.gb_per_s * 1e6)


LINKS = tuple(
    Link(f"{generation} x{lanes}", speed * lanes / 16)
    for generation, speed in X16_GB_PER_S.items()
    for lanes in LANES
)


def streamed_ms(copy: float, compute: float, slots: int, *, warm: bool) -> float:
    """Milliseconds of an encode that streams.

    Args:
        copy: milliseconds that the copy of one block takes.
        compute: milliseconds that one block computes.
        slots: blocks that the ring holds.
        warm: whether the ring holds the first blocks when the encode begins.
    """
    copied: list[float] = []
    computed: list[float] = []
    for block in range(BLOCKS):
        bus_free = copied[-1] if copied else 0.0
        slot_free = computed[block - slots] if block >= slots else 0.0
        held = warm and block < slots
        copied.append(0.0 if held else max(bus_free, slot_free) + copy)
        computed.append(max(computed[-1] if computed else 0.0, copied[-1]) + compute)
    return computed[-1]


@dataclass(frozen=True)
class Placement:
    """Where a tower's weights are, and what an encode takes.

    Args:
        name: for the table and the plot.
        held_blocks: blocks' worth of device memory that the weights take at most.
        colour: of its line in the plot.
        encode_ms: milliseconds of an encode, from those of one block's copy and compute.
    """

    name: str
    held_blocks: int
    colour: str
    encode_ms: Callable[[float, float], float]


RESIDENT = Placement("resident", BLOCKS, "#777777", lambda copy, compute: BLOCKS * compute)
STREAMED = (
    Placement("warm ring of 3", 3, "#0a7d38", lambda t, c: streamed_ms(t, c, 3, warm=True)),
    Placement("2 cold slots", 2, "#1f5fbf", lambda t, c: streamed_ms(t, c, 2, warm=False)),
    Placement("1 slot", 1, "#b8860b", lambda t, c: streamed_ms(t, c, 1, warm=True)),
    Placement("serial bulk copy", 1, "#b3261e", lambda t, c: BLOCKS * (t + c)),
    # It takes as long, in this model, and the memory of the whole.
    Placement("whole-tower copy", BLOCKS, "#b3261e", lambda t, c: BLOCKS * t + BLOCKS * c),
)


def hidden_from(link: Link) -> float:
    """Patches from which on a block computes for as long as the next one's copy takes."""
    return link.copy_ms() * BLOCKS / MS_PER_PATCH


def table(link: Link) -> Table:
    """One link's rows: milliseconds, and in brackets how many times those of a resident tower."""
    copies = BLOCKS * link.copy_ms()
    title = (
        f"PCIe {link.name}, {link.gb_per_s:.1f} GB/s: all blocks copied in {copies:.1f} ms, "
        f"hidden from {hidden_from(link):.0f} patches on (model)"
    )
    built = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("patches", *(f"{p.name}\n{_held(p)}" for p in (RESIDENT, *STREAMED))):
        built.add_column(heading, justify="right", no_wrap=True)
    for patches in PATCHES:
        compute = patches * MS_PER_PATCH / BLOCKS
        resident = RESIDENT.encode_ms(link.copy_ms(), compute)
        cells = [f"{patches}", f"{resident:.1f}"]
        for placement in STREAMED:
            taken = placement.encode_ms(link.copy_ms(), compute)
            cells.append(f"{taken:.1f} ({taken / resident:.2f})")
        built.add_row(*cells)
    return built


def _held(placement: Placement) -> str:
    return f"{placement.held_blocks * BLOCK_MIB} MiB"


WIDTH, HEIGHT, LEFT, TOP = 250, 220, 46, 60
HIGHEST = 32
"""Times a resident tower's encode: where the plots end."""


def plot(links: Sequence[Link]) -> str:
    """Draw an SVG, a panel for each link: times of a resident encode by patches, both log2."""
    drawn = [p for p in STREAMED if p.name != "whole-tower copy"]
    parts: list[str] = []
    for column, link in enumerate(links):
        parts.append(_panel(link, drawn, LEFT + column * (WIDTH + LEFT)))
    width = LEFT + len(links) * (WIDTH + LEFT)
    for index, placement in enumerate(drawn):
        x = LEFT + index * 190
        whole = ", whole-tower copy" if placement.name == "serial bulk copy" else ""
        parts.append(
            f'<line x1="{x}" y1="32" x2="{x + 24}" y2="32" stroke="{placement.colour}" '
            f'stroke-width="2"/><text x="{x + 30}" y="36">{placement.name}{whole}</text>'
        )
    heading = (
        "Encode time over that of a resident tower, by patches. A model, not a measurement: "
        f"{BLOCKS} blocks of {BLOCK_MIB} MiB, 296 ms of compute at 8192 patches."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + TOP + 40}" '
        'font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="{LEFT}" y="16">{heading}'
        "</text>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(link: Link, drawn: Sequence[Placement], left: int) -> str:
    first, last = math.log2(PATCHES[0]), math.log2(PATCHES[-1])

    def x(patches: float) -> float:
        return left + (math.log2(patches) - first) / (last - first) * WIDTH

    def y(times: float) -> float:
        return TOP + HEIGHT - math.log2(times) / math.log2(HIGHEST) * HEIGHT

    parts = [
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{left}" y="{TOP - 6}">PCIe {link.name}, {link.gb_per_s:.1f} GB/s</text>',
    ]
    for patches in PATCHES[::2]:
        at = f'x="{x(patches):.1f}" y="{TOP + HEIGHT + 14}"'
        parts.append(f'<text {at} text-anchor="middle">{patches}</text>')
    for times in (2**n for n in range(int(math.log2(HIGHEST)) + 1)):
        parts.append(
            f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(times):.1f}" y2="{y(times):.1f}" '
            f'stroke="#e5e5e5"/><text x="{left - 4}" y="{y(times) + 4:.1f}" '
            f'text-anchor="end">{times}</text>'
        )
    steps = [2 ** (first + (last - first) * i / 64) for i in range(65)]
    for placement in drawn:
        points = []
        for patches in steps:
            compute = patches * MS_PER_PATCH / BLOCKS
            taken = placement.encode_ms(link.copy_ms(), compute) / (BLOCKS * compute)
            if taken <= HIGHEST:
                points.append(f"{x(patches):.1f},{y(taken):.1f}")
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{placement.colour}" '
            'stroke-width="2"/>'
        )
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; write the plot where asked."""
    parser = argparse.ArgumentParser(description="What streaming a tower costs, in a model.")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where to write the plot")
    parsed = parser.parse_args(arguments)
    out = Console(width=112, highlight=False, markup=False)
    out.print("A model, nothing here is measured. Milliseconds (times the resident tower's).\n")
    for link in LINKS:
        out.print(table(link))
    if parsed.svg is not None:
        shown = [link for link in LINKS if link.name in ("5.0 x16", "4.0 x16", "3.0 x4")]
        try:
            parsed.svg.write_text(plot(shown), encoding="utf-8")
        except OSError as error:
            raise RigError(
                f"the plot cannot be written: {error.strerror}",
                where=parsed.svg,
                next_step="name a file in a folder that exists and that you may write",
            ) from error
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except RigError as error:
        raise SystemExit(str(error)) from None
