# mypy: disable-error-code="import-not-found"
"""The command line. What was asked for is checked before torch is imported."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench_towers.streamer_files import find_towers_folder, load_streamer
from rig.errors import RigError, first_line_of_os_error

if TYPE_CHECKING:
    from bench_towers.report import Report

TOWERS = ("qwen3-vl-8b", "qwen2.5-vl-7b", "siglip-so400m")
PATCHES = (64, 256, 1024, 4096, 8192, 16384)
TINY_PATCHES = (16, 64)
DTYPES = ("bfloat16", "float16", "float32")
_BUDGET_SECONDS = 270.0
_CHECKOUT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the files that were asked for.

    Returns:
        0; 1 if an output differed or a placement of ours failed; 2 if it could not begin.
    """
    started = time.monotonic()
    options = _parser().parse_args(arguments)
    try:
        report = _run(options, started)
        # The files first: whoever reads the table may have gone, and the minutes with it.
        if options.json:
            _write(options.json, report.json())
        if options.svg:
            from bench_towers.plot import svg

            _write(options.svg, svg(report))
        try:
            sys.stdout.write(report.text())
            sys.stdout.flush()
        except OSError as error:
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - nor at exit
            raise RigError(
                f"cannot print the table: {first_line_of_os_error(error)}",
                next_step="--json FILE keeps it in a file",
            ) from error
    except RigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 1 if report.problems() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench-towers",
        description="Encode time and memory of vision towers by where their weights lie: on the "
        "device, streamed, copied, read over the bus. docs/bench-towers.md explains the table.",
    )
    add = parser.add_argument
    add("--tower", action="append", metavar="NAME", help=f"of {', '.join(TOWERS)}; all if absent")
    add("--placement", action="append", metavar="KEY", help="rows to measure; all if absent")
    add("--patches", type=_counts, metavar="N,N,..", help="sizes of the pictures, multiples of 4")
    add("--tiny", action="store_true", help="small towers: does it work at all?")
    add("--dtype", choices=DTYPES, default=DTYPES[0])
    add("--device", default="auto", metavar="auto|cpu|cuda[:N]")
    add("--repeats", type=_positive, default=10, metavar="N", help="encodes whose median counts")
    add(
        "--resident-share",
        type=_share,
        default=0.25,
        metavar="SHARE",
        help="of the bytes that can stream, what the resident budget keeps (0.25)",
    )
    add("--budget-seconds", type=_seconds, default=_BUDGET_SECONDS, metavar="SECONDS")
    add("--tree", type=Path, default=_CHECKOUT / "build" / "vllm-0.33.0", help="an applied tree")
    add("--towers-dir", type=Path, metavar="DIR", help="the streamer's files, copied from a tree")
    add("--json", type=Path, metavar="FILE")
    add("--svg", type=Path, metavar="FILE")
    return parser


def _run(options: argparse.Namespace, started: float) -> Report:
    names = _known(options.tower, TOWERS, "tower")
    folder = find_towers_folder(options.tree, options.towers_dir)
    if options.json and options.svg and options.json.absolute() == options.svg.absolute():
        raise RigError(
            "--json and --svg name one file, and the second would replace the first",
            where=options.json,
            next_step="name two files",
        )
    for path in (options.json, options.svg):
        if path is not None:
            _check_writable(path)
    missing = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
    if missing:
        raise RigError(
            f"this Python has no {' and no '.join(missing)}",
            where=sys.executable,
            next_step="run it with one that has: /path/to/python scripts/bench-towers",
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a download
    files = load_streamer(folder)

    import torch

    from bench_towers import machine as machines
    from bench_towers import towers
    from bench_towers.measure import TowerBench
    from bench_towers.placed import Setting
    from bench_towers.placements import PLACEMENTS, RESIDENT
    from bench_towers.report import Report

    keys = _known(options.placement, [p.key for p in PLACEMENTS], "placement")
    try:
        device = machines.find_device(options.device)
    except (ValueError, RuntimeError) as error:
        raise RigError(
            f"cannot measure on {options.device}", where=error, next_step="try --device auto"
        ) from error
    machine = machines.Machine(device)
    if options.tiny:
        torch.set_num_threads(1)  # threads would wait for each other, not compute
    placements = [p for p in PLACEMENTS if p.key in keys or p is RESIDENT]
    counts = options.patches or (TINY_PATCHES if options.tiny else PATCHES)
    header = machines.describe(machine, files)
    bus = machines.measure_bus(machine, files)
    recipes = towers.TINY if options.tiny else towers.REAL
    setting = Setting(device, files, options.resident_share)
    dtype = getattr(torch, options.dtype)
    deadline = started + options.budget_seconds
    figures = []
    for index, name in enumerate(names):
        now = time.monotonic()
        until = now + (deadline - now) / (len(names) - index)
        one = TowerBench(machine, setting, dtype, counts, options.repeats)
        figures.append(one.run(name, recipes[name], placements, until))
        machine.tidy()
    asked = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in vars(options).items()
    }
    asked |= {"tower": names, "placement": [p.key for p in placements], "patches": list(counts)}
    return Report(header, bus, asked, machine.is_cuda, figures, time.monotonic() - started)


def _known(asked: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    for name in asked or ():
        if name not in known:
            raise RigError(
                f"unknown {what} {name}", next_step=f"name one of {', '.join(known)}, or none"
            )
    return [name for name in known if not asked or name in asked]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("seconds are a finite number above 0")
    return seconds


def _check_writable(path: Path) -> None:
    """Fail before the minutes of measuring, not after them."""
    existed = path.exists()
    try:
        with path.open("a"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise RigError(
            f"cannot write: {first_line_of_os_error(error)}",
            where=path,
            next_step="name a file in a folder that exists and that you may write to",
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RigError(f"cannot write: {first_line_of_os_error(error)}", where=path) from error


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError("whole numbers, with commas between") from None
    if counts[0] < 4 or any(count % 4 for count in counts):
        raise argparse.ArgumentTypeError("numbers of patches are multiples of 4, 4 or more")
    return tuple(counts)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def _share(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError("between 0 and 1")
    return float(text)
