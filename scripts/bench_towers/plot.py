"""The plot: encode time as a multiple of the resident tower's, by patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench_towers.figures import TowerFigures
from bench_towers.report import Report

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 240, 50, 62, 46
_LINE = 16
_TICKS = (0.5, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def svg(report: Report) -> str:
    """A panel for each tower, both axes logarithmic."""
    towers = report.towers
    titles = _titles(towers)
    ratios = [r for tower in towers for line in _lines(tower).values() for _, r in line]
    low, high = min([0.95, *ratios]), max([1.3, *ratios])
    width = _LEFT + len(towers) * (_WIDTH + _GAP)
    legend_top = _TOP + _HEIGHT + 50
    height = legend_top + _LINE * len(titles) + 8
    card = report.header["card"] if report.is_cuda else "no GPU: times mean nothing"
    heading = f"Encode time as a multiple of the resident tower's ({card})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f"<title>{escape(heading)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(heading)}</text>',
        f'<text x="{_LEFT}" y="36">link {escape(str(report.bus["link"]))}; '
        f"copies alone {report.bus['h2d_gb_per_s']:.1f} GB/s</text>",
    ]
    for index, tower in enumerate(towers):
        parts += _panel(tower, titles, _LEFT + index * (_WIDTH + _GAP), low, high)
    for index, title in enumerate(titles):
        y = legend_top + _LINE * index
        parts.append(f'<path d="M{_LEFT} {y}h30" {_style(index)}/>')
        parts.append(f'<text x="{_LEFT + 38}" y="{y + 4}">{escape(title)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    tower: TowerFigures, titles: Sequence[str], left: int, low: float, high: float
) -> list[str]:
    counts = [cell.patches for cell in tower.rows[0].cells]
    first, last = math.log(counts[0]), math.log(counts[-1])

    def x(patches: int) -> float:
        share = (math.log(patches) - first) / (last - first) if last > first else 0.5
        return round(left + share * _WIDTH, 1)

    def y(ratio: float) -> float:
        share = math.log(ratio / low) / math.log(high / low)
        return round(_TOP + (1 - share) * _HEIGHT, 1)

    bottom = _TOP + _HEIGHT
    parts = [f'<text x="{left}" y="{_TOP - 8}">{escape(tower.name)}</text>']
    for tick in _TICKS:
        if low <= tick <= high:
            colour = "#888" if tick == 1 else "#ddd"
            parts.append(f'<path d="M{left} {y(tick)}h{_WIDTH}" stroke="{colour}"/>')
            parts.append(
                f'<text x="{left - 5}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>'
            )
    for count in counts:
        parts.append(f'<path d="M{x(count)} {bottom}v4" stroke="#888"/>')
        parts.append(f'<text x="{x(count)}" y="{bottom + 17}" text-anchor="middle">{count}</text>')
    parts.append(
        f'<text x="{left + _WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">patches</text>'
    )
    for title, line in _lines(tower).items():
        style = _style(titles.index(title))
        points = " ".join(f"{x(patches)},{y(ratio)}" for patches, ratio in line)
        parts.append(f'<polyline points="{points}" {style}/>')
        parts += [
            f'<circle cx="{x(p)}" cy="{y(r)}" r="2" {style.split(" stroke-dash")[0]}/>'
            for p, r in line
        ]
    return parts


def _lines(tower: TowerFigures) -> dict[str, list[tuple[int, float]]]:
    """Title -> (patches, times resident), of the rows that have such points."""
    resident = {
        c.patches: c.ms for row in tower.rows if row.key == "resident" for c in row.cells if c.ms
    }
    lines = {
        row.title: [
            (c.patches, c.ms / resident[c.patches])
            for c in row.cells
            if c.ms and c.patches in resident
        ]
        for row in tower.rows
        if row.key != "resident"
    }
    return {title: line for title, line in lines.items() if line}


def _titles(towers: Sequence[TowerFigures]) -> list[str]:
    return list(dict.fromkeys(title for tower in towers for title in _lines(tower)))


def _style(index: int) -> str:
    colour = _COLOURS[index % len(_COLOURS)]
    dashes = ("", ' stroke-dasharray="6 3"', ' stroke-dasharray="2 2"')
    style = dashes[index // len(_COLOURS) % len(dashes)]
    return f'fill="none" stroke="{colour}" stroke-width="1.5"{style}'
