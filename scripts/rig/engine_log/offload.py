"""What the engine says of offloaded weights and of streamed towers."""

from __future__ import annotations

import re

from rig.engine_log.facts import Offload, Tower
from rig.engine_log.lines import Line, size

_N = r"\d{1,12}(?:\.\d{1,9})?"
_SET = re.compile(r"Offloader set to (\w{1,80})")
# The series: "12 parameters, 0.86 GiB". The release as it is: "0.86", which is GiB.
_TOTAL = re.compile(
    rf"Total CPU offloaded parameters: (?:\d{{1,12}} parameters?, )?({_N})(?: (bytes|KiB|MiB|GiB))?"
)
_PREFETCH = re.compile(rf"\[PrefetchOffloader\] Initialized .{{0,80}}memory saved: ({_N}) GB")
_SEGMENT = re.compile(r"CPU offload of .{1,120}?: ")
_TOWER_MARK = "Tower streaming: "
_TOWER = re.compile(
    r"(?P<name>[^:]{1,200}): (?P<units>\d{1,6}) units, "
    rf"(?P<streamed>{_N}) MiB streamed per encode; "
    rf"\d{{1,6}} units, (?P<resident>{_N}) MiB resident; "
    rf"ring of (?P<slots>\d{{1,6}}) slots of {_N} MiB, (?P<ring>{_N}) MiB; "
    rf"stem (?P<stem>{_N}) MiB resident(?:; (?P<fetched>{_N}) MiB fetched on demand)?"
)
_HOST = re.compile(
    rf"(?P<name>[^:]{{1,200}}): (?P<host>{_N}) MiB of host memory in "
    r"(?P<buffers>\d{1,6}) buffers, (?:exact|rounded up by the allocator), "
    r"(?P<pinned>\d{1,6}) pinned, (?P<shared>\d{1,6}) shared"
)
_SAVED = re.compile(rf"(?P<name>[^:]{{1,200}}): (?P<saved>{_N}) MiB of device memory saved")
_BUS = re.compile(
    rf"(?P<name>[^:]{{1,200}}): .{{0,120}}filled at (?P<rate>{_N}) GB/s, so an encode's "
    rf"copies take (?P<ms>{_N}) ms"
)
_REFUSALS = (
    "--cpu-offload-gb does nothing",
    "--cpu-offload-gb holds nothing",
    "--cpu-offload-gb takes weights in the order",
    "--cpu-offload-gb is not supported",
    "--cpu-offload-params has no effect",
    "--cpu-offload-params names nothing",
    "--cpu-offload-params reaches decoder layers",
    "Host memory for offloaded weights",
)


class OffloadReader:
    """Give it each line, then ask for the facts."""

    def __init__(self) -> None:
        self._classes: dict[str, None] = {}
        self._held: dict[str, int] = {}
        self._prefetch: int | None = None
        self._segments: dict[str, None] = {}
        self._refusals: dict[str, None] = {}
        self._towers: dict[str, dict[str, str]] = {}
        self._tower_lines: dict[str, None] = {}

    def see(self, line: Line) -> None:
        said = line.said
        if said.startswith(_TOWER_MARK):
            self._see_tower(said.removeprefix(_TOWER_MARK))
        elif match := _SET.match(said):
            self._classes.setdefault(match[1])
        elif match := _TOTAL.match(said):
            # Cumulative where it is said more than once, so that the last figure counts.
            self._held[line.rank_key] = size(match[1], match[2] or "GiB")
        elif match := _PREFETCH.match(said):
            self._prefetch = size(match[1], "GB")
        elif said.startswith(_REFUSALS):
            self._refusals.setdefault(said)
        elif _SEGMENT.match(said):
            self._segments.setdefault(said)

    def _see_tower(self, said: str) -> None:
        self._tower_lines.setdefault(said)
        for pattern in (_TOWER, _HOST, _SAVED, _BUS):
            if match := pattern.match(said):
                found = {k: v for k, v in match.groupdict().items() if v is not None}
                self._towers.setdefault(found.pop("name"), {}).update(found)

    def facts(self) -> Offload:
        return Offload(
            classes=tuple(self._classes),
            held_bytes=max(self._held.values(), default=None),
            prefetch_saved_bytes=self._prefetch,
            segments=tuple(self._segments),
            refusals=tuple(self._refusals),
            towers=tuple(_tower(n, said) for n, said in self._towers.items() if "units" in said),
            tower_lines=tuple(self._tower_lines),
        )


def _tower(name: str, said: dict[str, str]) -> Tower:
    def mib(key: str) -> int | None:
        return size(said[key], "MiB") if key in said else None

    def count(key: str) -> int | None:
        return int(said[key]) if key in said else None

    return Tower(
        name=name,
        units=int(said["units"]),
        streamed_bytes=mib("streamed") or 0,
        resident_bytes=mib("resident") or 0,
        slots=int(said["slots"]),
        ring_bytes=mib("ring") or 0,
        stem_bytes=mib("stem") or 0,
        fetched_bytes=mib("fetched") or 0,
        host_bytes=mib("host"),
        host_buffers=count("buffers"),
        pinned_buffers=count("pinned"),
        shared_buffers=count("shared"),
        saved_bytes=mib("saved"),
        bus_bytes_per_s=float(said["rate"]) * 1e9 if "rate" in said else None,
        encode_copies_ms=float(said["ms"]) if "ms" in said else None,
    )
