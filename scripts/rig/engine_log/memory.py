"""How the engine has divided the memory of its cards."""

from __future__ import annotations

import re

from rig.engine_log.facts import Memory
from rig.engine_log.lines import Line, size

_N = r"(\d{1,9}(?:\.\d{1,9})?)"
_COUNT = r"([\d,]{1,24})"
_TOKENS = re.compile(rf"(\w{{1,20}}(?: \+ host)?) KV cache size: {_COUNT} tokens")
_CONCURRENCY = re.compile(rf"Maximum concurrency for {_COUNT} tokens per request: {_N}x")
_AVAILABLE = re.compile(rf"Available KV cache memory: {_N} GiB")
_RESERVED = re.compile(rf"reserved {_N} GiB memory for KV Cache as specified")
_ON_CPU = re.compile(rf"Explicitly set \({_N}/{_N}\) GiB for KV cache on node")
_WEIGHTS = re.compile(rf"Model loading took {_N} GiB")
_GRAPHS = re.compile(rf"Graph capturing finished in \d{{1,9}} secs, took {_N} GiB")
_LENGTH = re.compile(r"Using max model len (\d{1,12})")
_FITTED = re.compile(r"Auto-fit max_model_len: reduced from \d{1,12} to (\d{1,12})")


class MemoryReader:
    """Give it each line, then ask for the facts."""

    def __init__(self) -> None:
        self._device: str | None = None
        self._tokens: int | None = None
        self._length: int | None = None
        self._concurrency: float | None = None
        self._kv: dict[str, int] = {}
        self._weights: dict[str, int] = {}
        self._graphs: dict[str, int] = {}

    @property
    def has_cache(self) -> bool:
        """The weights were loaded and the cache was made."""
        return self._tokens is not None

    def see(self, line: Line) -> None:
        said = line.said
        if match := _TOKENS.search(said):
            self._device, self._tokens = match[1], _count(match[2])
        if match := _CONCURRENCY.search(said):
            self._length, self._concurrency = _count(match[1]), float(match[2])
        for pattern, into in (
            (_AVAILABLE, self._kv),
            (_RESERVED, self._kv),
            (_ON_CPU, self._kv),
            (_WEIGHTS, self._weights),
            (_GRAPHS, self._graphs),
        ):
            if match := pattern.search(said):
                into[line.rank_key] = size(match[1], "GiB")
        if match := _LENGTH.match(said) or _FITTED.match(said):
            self._length = int(match[1])

    def facts(self) -> Memory:
        return Memory(
            kv_device=self._device,
            kv_tokens=self._tokens,
            kv_bytes=min(self._kv.values(), default=None),
            max_model_len=self._length,
            max_concurrency=self._concurrency,
            # What loads most has the least room left: that rank is the one that counts.
            weights_bytes=max(self._weights.values(), default=None),
            graphs_bytes=max(self._graphs.values(), default=None),
        )


def _count(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits else None
