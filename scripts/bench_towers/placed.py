# mypy: disable-error-code="import-not-found"
"""What all placements share: a tower that is ready to encode, and weights packed on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bench_towers.streamer_files import StreamerFiles
from bench_towers.towers import encode


class NotMeasured(Exception):
    """A placement that this machine cannot try; the text says why."""


@dataclass(frozen=True)
class Setting:
    """What a placement is made with.

    Args:
        resident_share: of the bytes that could stream, what a resident budget keeps.
        timed: measure how long compute waits for copies, at the price of two more events each.
    """

    device: torch.device
    files: StreamerFiles
    resident_share: float
    timed: bool = False


@dataclass(frozen=True)
class Host:
    """The host memory that a placement holds.

    Args:
        nbytes: allocated; more than the weights where an allocator rounds up.
        pinned, exact: of all its buffers; None where there are none, or nobody can tell.
    """

    nbytes: int = 0
    pinned: bool | None = None
    exact: bool | None = None


@dataclass
class Placed:
    """A tower in one placement.

    Args:
        tower: ready to be called.
        device_bytes: weights and buffers that it keeps on the device between encodes, by count.
        host: what it keeps on the host.
        copied_bytes: copied to the device in each encode.
        note: what a reader should know of it.
        before_encode: run before each encode, outside of the measured time.
        waited: seconds that compute has waited for copies so far; None where not measured.
        stop: undo what outlives the tower.
        held: whatever must live as long as the tower.
    """

    tower: Any
    device_bytes: int
    host: Host = Host()
    copied_bytes: int = 0
    note: str = ""
    before_encode: Callable[[], object] = lambda: None
    waited: Callable[[], float | None] = lambda: None
    stop: Callable[[], object] = lambda: None
    held: Any = None

    def encode(self, inputs: dict[str, Any]) -> list[torch.Tensor]:
        """All tensors that the tower returns for one picture."""
        with torch.inference_mode():
            return encode(self.tower, inputs)


class Allocator:
    """Host buffers of the streamer's own kind, and what they are together."""

    def __init__(self, setting: Setting) -> None:
        self._host_memory = setting.files.host_memory
        self._pin = setting.device.type == "cuda"
        self._buffers: list[Any] = []

    def __call__(self, nbytes: int) -> Any:
        """A `HostBuffer` of that many bytes."""
        self._buffers.append(self._host_memory.allocate(nbytes, pin=self._pin))
        return self._buffers[-1]

    def host(self) -> Host:
        """What has been allocated so far."""
        sizes = [
            b.tensor.numel() if b.exact else 1 << (b.tensor.numel() - 1).bit_length()
            for b in self._buffers
        ]
        return Host(
            sum(sizes),
            pinned=all(b.pinned for b in self._buffers),
            exact=all(b.exact for b in self._buffers),
        )

    def note(self) -> str:
        """Why the memory is less than it could be; empty if it is not."""
        return next((str(b.reason) for b in self._buffers if b.reason), "")


class PackedUnit:
    """A unit's parameters in one flat host buffer, for the placements that do not stream."""

    def __init__(
        self,
        module: nn.Module,
        parameters: Iterable[nn.Parameter],
        files: StreamerFiles,
        allocate: Allocator,
    ) -> None:
        self.module = module
        self._parameters = list(parameters)
        self._places, nbytes = files.units.lay_out(p.data for p in self._parameters)
        self.buffer: torch.Tensor = allocate(nbytes).tensor
        for parameter, value in zip(self._parameters, self.views(self.buffer), strict=True):
            value.copy_(parameter.data)
            parameter.data = value

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The parameters' values in a buffer that holds this unit from its first byte on."""
        return [place.view(buffer) for place in self._places]

    def point(self, values: Iterable[torch.Tensor]) -> None:
        """Let the parameters hold these values."""
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.data = value


def streamable(tower: Any, files: StreamerFiles) -> list[tuple[Any, dict[str, nn.Parameter]]]:
    """The units of a tower, each with the parameters that nothing else refers to."""
    # No subclass: attention of torch reads the weights of its own kind of linear past its forward.
    units = files.units.find_units(tower, "tower", lambda m: type(m) is nn.Linear)
    own = files.units.own_parameters(units, [tower])
    return [pair for pair in zip(units, own, strict=True) if pair[1]]


def nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of some tensors together."""
    return sum(t.numel() * t.element_size() for t in tensors)


def move_rest(tower: Any, stay: Iterable[nn.Parameter], device: torch.device) -> int:
    """Move everything to the device but some parameters, and return the bytes that went."""
    kept = {id(parameter) for parameter in stay}
    moved = 0
    for module in tower.modules():
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in kept:
                kept.add(id(parameter))
                parameter.data = parameter.data.to(device)
                moved += nbytes([parameter])
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = value.to(device)
                moved += nbytes([value])
    return moved


def hook(module: nn.Module, before: Callable[[], object], after: Callable[[], object]) -> None:
    """Run something before and after an instance's forward, also when that raises."""
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return inner(*args, **kwargs)
        finally:
            after()

    module.forward = forward
