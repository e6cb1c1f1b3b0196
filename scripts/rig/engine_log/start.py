"""What a start says of itself: version, series, arguments, ranks, attention."""

from __future__ import annotations

import ast
import re
from typing import Any

from rig.engine_log.facts import Rank
from rig.engine_log.lines import Line

_ENGINE = re.compile(r"Initializing a V\d LLM engine \(v([^)]{1,60})\) with config: (.*)")
_SERIES = re.compile(r"vllm-rig: (\S{1,60}), series (\w{1,64}), patches ((?:\d{4} ?){0,200})")
_ASKED = re.compile(r"non-default args: (\{.*\})")
_WORLD = re.compile(
    r"world_size=(\d{1,5}) rank=(\d{1,5}) local_rank=(\d{1,5}) .{0,300}?backend=(\w{1,20})"
)
_ASSIGNED = re.compile(
    r"rank (\d{1,5}) in world size (\d{1,5}) is assigned as DP rank \d{1,5}, "
    r"PP rank (\d{1,5}),.{0,60}? TP rank (\d{1,5})"
)
_ATTENTION = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{2,40})(?: attention)? backend"
)
_ENCODER = re.compile(
    r"Using (?:default )?backend (?:AttentionBackendEnum\.)?(\w{1,40}) for vit attention"
)
_RUNNER = re.compile(r"[Uu]sing (?:the )?(V[12]) [Mm]odel [Rr]unner")
_MIXED = re.compile(r"Detected different devices in the system: (.{1,400}?)\. Please")
_READY = ("Starting vLLM server on ", "Application startup complete", "Starting vLLM API server")
# By multiprocessing the first is said of each worker; under Ray, with the series, the second.
_NUMA = re.compile(
    r"Binding worker subprocess|\S.{0,60} bound to CPUs \S{1,400} and memory of NUMA"
)
_NUMA_NOT = re.compile(r" is not NUMA-bound: | but not to the memory of NUMA node ")


class StartReader:
    """Give it each line, then read what it has found."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.series: str | None = None
        self.patches: tuple[str, ...] = ()
        self.asked: dict[str, str] | None = None
        self.world_size: int | None = None
        self.backend: str | None = None
        self.attention: str | None = None
        self.encoder_attention: str | None = None
        self.runner: str | None = None
        self.mixed: tuple[str, ...] = ()
        self.numa: dict[str, None] = {}
        self.numa_not: dict[str, None] = {}
        self.ready = False
        self._config = ""
        self._ranks: dict[int, Rank] = {}

    def see(self, line: Line) -> None:
        said = line.said
        if match := _ENGINE.match(said):
            self.version, self._config = match[1], match[2]
        elif match := _SERIES.match(said):
            self.version, self.series = match[1], match[2]
            self.patches = tuple(match[3].split())
        elif match := _ASKED.match(said):
            self.asked = _arguments(match[1])
        elif match := _WORLD.search(said):
            self.world_size, self.backend = int(match[1]), match[4]
            self._know(int(match[2]), local_rank=int(match[3]))
        elif match := _ASSIGNED.match(said):
            self.world_size = int(match[2])
            self._know(int(match[1]), pp=int(match[3]), tp=int(match[4]))
        elif match := _MIXED.search(said):
            self.mixed = tuple(match[1].split(", "))
        elif match := _RUNNER.search(said):
            self.runner = match[1]
        elif match := _ENCODER.match(said):
            self.encoder_attention = match[1]
        elif match := _ATTENTION.match(said):
            self.attention = match[1]
        elif _NUMA_NOT.search(said):
            self.numa_not.setdefault(said)
        elif _NUMA.match(said):
            self.numa.setdefault(said)
        self.ready |= any(sign in said for sign in _READY)

    def _know(self, rank: int, **what: int) -> None:
        self._ranks[rank] = self._ranks.get(rank, Rank(rank=rank)).model_copy(update=what)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return tuple(rank for _, rank in sorted(self._ranks.items()))

    def config(self, name: str) -> str | None:
        """A value of the engine's whole configuration, e.g. "tensor_parallel_size"."""
        match = re.search(rf"(?<![\w.]){re.escape(name)}=('[^']*'|[^,\s]+)", self._config)
        return match[1].strip("'") if match else None

    def value(self, name: str) -> str | None:
        """An argument as given, else as the engine's configuration has it."""
        if self.asked and name in self.asked:
            return self.asked[name]
        return self.config(name)

    def number(self, name: str) -> int | None:
        """The same as a whole number, if it is one."""
        text = self.value(name) or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _arguments(text: str) -> dict[str, str] | None:
    """The arguments that the engine repeats; values that are no literals stay as they are."""
    try:
        found: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pairs = re.findall(r"'(\w+)': ('[^']*'|[^,{}\[\]]+)", text)
        return {name: value.strip("'") for name, value in pairs}
    if not isinstance(found, dict):
        return None
    return {str(name): str(value) for name, value in found.items()}
