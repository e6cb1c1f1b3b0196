"""What happens to weights at rest: who reads their device, who computes on them, and where."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

import torch

_HERE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_MODEL_CODE = ("/vllm/model_executor/models/", "/vllm/models/", "/transformers/models/")
_PACKAGES = ("/vllm/", "/transformers/")


@dataclass(frozen=True, order=True)
class Site:
    """A line of code.

    Attributes:
        file: its path from the package on (`vllm/...`), or its name.
        line: its number.
        code: its text.
    """

    file: str
    line: int
    code: str


class AtRest(RuntimeError):
    """An op that an accelerator would refuse, or that would compute on the host unasked."""

    def __init__(self, what: str, site: Site) -> None:
        super().__init__(f"{what} at {site.file}:{site.line}")
        self.what = what
        self.site = site


@dataclass
class Watch:
    """One run: what is answered, and what was seen.

    Attributes:
        truthful: sites that are told where a resting weight is; the others are told the device,
            as if it were there. All are told the truth when None.
        tolerated: sites whose computations on resting weights, or on tensors of both devices, go
            on as if all were on the device. All are tolerated when None.
        reads: sites that asked for a resting weight's device -> how they asked, on which weights.
        computes: sites that computed on a resting weight -> op and weights.
        mixes: sites where tensors of both devices met -> ops.
        met: names of the resting weights that the run came across in any way.
    """

    truthful: frozenset[Site] | None = None
    tolerated: frozenset[Site] | None = frozenset()
    reads: dict[Site, set[tuple[str, str]]] = field(default_factory=dict)
    computes: dict[Site, set[tuple[str, str]]] = field(default_factory=dict)
    mixes: dict[Site, set[str]] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)

    def read(self, how: str, weight: str) -> bool:
        """Note who asks for a device; whether to tell the truth."""
        site = here()
        self.reads.setdefault(site, set()).add((how, weight))
        return self.truthful is None or site in self.truthful

    def compute(self, op: str, weights: list[str]) -> None:
        """Note an op on resting weights; raises AtRest unless it is tolerated."""
        site = here()
        self.computes.setdefault(site, set()).update((op, weight) for weight in weights)
        self._judge(f"{op} computes on a weight at rest on the host", site)

    def mix(self, op: str) -> None:
        """Note an op on tensors of two devices; raises AtRest unless it is tolerated."""
        site = here()
        self.mixes.setdefault(site, set()).add(op)
        self._judge(f"{op} meets tensors of two devices", site)

    def _judge(self, what: str, site: Site) -> None:
        if self.tolerated is not None and site not in self.tolerated:
            raise AtRest(what, site)


_current = Watch(tolerated=None)


def current() -> Watch:
    """The watch of the run that is going on."""
    return _current


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Make a watch the current one."""
    global _current
    before, _current = _current, watch
    try:
        yield watch
    finally:
        _current = before


def here() -> Site:
    """The line that is being run: the innermost that is not torch's.

    Where that is a layer of vLLM's, which any model may use, it is the model's line that called it.
    """
    frame: FrameType | None = sys._getframe(1)
    layer: tuple[str, int] | None = None
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        kind = _kind(file)
        if kind == "model" or (kind == "other" and layer is None):
            return site_of(file, line)
        if kind == "layer" and layer is None:
            layer = file, line
        frame = frame.f_back
    return site_of(*(layer or ("?", 0)))


def site_of(file: str, line: int) -> Site:
    """A line by its path and number."""
    return Site(_short(file), line, linecache.getline(file, line).strip())


@cache
def _kind(file: str) -> str:
    if any(part in file for part in _MODEL_CODE):
        return "model"
    ours = file.startswith((_HERE, _TORCH, "<")) and "/recipes/" not in file
    if ours or ("/lib/python3" in file and "site-packages" not in file):
        return "machinery"
    return "layer" if any(package in file for package in _PACKAGES) else "other"


@cache
def _short(file: str) -> str:
    for package in _PACKAGES:
        if package in file:
            return package[1:] + file.rpartition(package)[2]
    return file.rpartition("/")[2]
