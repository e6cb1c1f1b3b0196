# mypy: disable-error-code="import-not-found"
"""The placements that are compared. Each takes a tower on the host, and may change it."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench_towers.machine import reads_host_addresses
from bench_towers.placed import (
    Allocator,
    Host,
    NotMeasured,
    PackedUnit,
    Placed,
    Setting,
    hook,
    move_rest,
    nbytes,
    streamable,
)


@dataclass(frozen=True)
class Placement:
    """One row of the table.

    Args:
        key: its name on the command line and in the JSON.
        title: its name in the table.
        place: makes it.
        ours: not somebody else's library: if it fails, the benchmark fails.
        streams: it is measured a second time, for its waits.
    """

    key: str
    title: str
    place: Callable[[Any, Setting], Placed]
    ours: bool = True
    streams: bool = False


def resident(tower: Any, setting: Setting) -> Placed:
    """All weights on the device."""
    return Placed(tower, move_rest(tower, [], setting.device))


def streamed(tower: Any, setting: Setting, *, slots: int, cold: bool, budget: bool) -> Placed:
    """Weights on the host, copied unit by unit ahead of the computation.

    Args:
        slots: of the ring.
        cold: nothing is in the ring when an encode begins.
        budget: some units stay on the device.
    """
    files = setting.files
    pairs = streamable(tower, files)
    sizes = [nbytes(own.values()) for _, own in pairs]
    limit = int(sum(sizes) * setting.resident_share) if budget else 0
    stay = files.schedule.choose_residents(sizes, limit)
    go = [pair for index, pair in enumerate(pairs) if index not in stay]
    if not go:
        raise NotMeasured("the resident budget holds all units")
    streaming = [parameter for _, own in go for parameter in own.values()]
    moved = move_rest(tower, streaming, setting.device)
    allocate = Allocator(setting)
    streamer = files.streamer.TowerStreamer(
        "tower",
        [unit for unit, _ in go],
        [own for _, own in go],
        slots,
        files.runtime.make_runtime(setting.device, timed=setting.timed),
        _for_the_streamer(files.streamer.TowerStreamer, allocate),
    )
    note = f"{len(go)} of {len(pairs)} units stream, slots of {streamer.slot_bytes / 2**20:.2f} MiB"
    return Placed(
        tower,
        moved + streamer.ring_bytes,
        allocate.host(),
        streamer.streamed_bytes,
        note="; ".join(part for part in (note, allocate.note()) if part),
        before_encode=streamer.suspend if cold else lambda: None,
        waited=lambda: streamer.counters().waited,
        stop=streamer.stop,
        held=streamer,
    )


def _for_the_streamer(streamer: Any, allocate: Allocator) -> Callable[[int], Any]:
    """`allocate`, or for a streamer that wants no more than a tensor, that of the buffer."""
    wanted = inspect.signature(streamer).parameters["allocate"].annotation
    if "HostBuffer" in str(wanted):
        return allocate
    return lambda nbytes: allocate(nbytes).tensor


def serial_copy(tower: Any, setting: Setting) -> Placed:
    """Each unit copied on the compute stream before it computes: nothing overlaps."""
    moved, units, allocate = _packed(tower, setting)
    slot = torch.empty(
        max(unit.buffer.numel() for unit in units), dtype=torch.uint8, device=setting.device
    )
    for unit in units:
        _copy_when_entered(unit, slot)
    return Placed(
        tower,
        moved + slot.numel(),
        allocate.host(),
        sum(unit.buffer.numel() for unit in units),
        note=allocate.note(),
    )


def _copy_when_entered(unit: PackedUnit, slot: torch.Tensor) -> None:
    on_device, at_rest = unit.views(slot), unit.views(unit.buffer)

    def before() -> None:
        slot[: unit.buffer.numel()].copy_(unit.buffer, non_blocking=True)
        unit.point(on_device)

    hook(unit.module, before, lambda: unit.point(at_rest))


def whole_copy(tower: Any, setting: Setting) -> Placed:
    """All units copied to fresh device memory when an encode begins, and dropped at its end."""
    moved, units, allocate = _packed(tower, setting)
    at_rest = [unit.views(unit.buffer) for unit in units]

    def before() -> None:
        with torch.inference_mode(False):
            for unit in units:
                unit.point(unit.views(unit.buffer.to(setting.device, non_blocking=True, copy=True)))

    def after() -> None:
        for unit, values in zip(units, at_rest, strict=True):
            unit.point(values)

    hook(tower, before, after)
    copied = sum(unit.buffer.numel() for unit in units)
    return Placed(tower, moved, allocate.host(), copied, note=allocate.note())


def zero_copy(tower: Any, setting: Setting) -> Placed:
    """Weights in pinned host memory that kernels read over the bus, as vLLM's UVA offload."""
    if setting.device.type != "cuda":
        raise NotMeasured("a CPU has no bus to read over")
    if not reads_host_addresses(setting.device):
        raise NotMeasured("the device does not read registered host memory at the host's address")
    moved, units, allocate = _packed(tower, setting)
    host = allocate.host()
    if not host.pinned:
        raise NotMeasured(f"host memory cannot be pinned: {allocate.note()}")
    for unit in units:
        unit.point(unit.views(_device_view(unit.buffer, setting.device)))
    copied = sum(unit.buffer.numel() for unit in units)
    return Placed(tower, moved, host, copied, note=allocate.note(), held=units)


class _DevicePointer:
    """An address that the device can read, for torch to make a tensor of."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (buffer.numel(),),
            "typestr": "|u1",
            "data": (buffer.data_ptr(), False),
            "strides": None,
            "version": 3,
        }


def _device_view(buffer: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The device's view of pinned host memory, which has the same address there."""
    try:
        view: torch.Tensor = torch.as_tensor(_DevicePointer(buffer), device=device)
    except Exception as error:
        raise NotMeasured(f"needs vLLM's kernels: torch makes no such view ({error})") from error
    if view.device != device or view.data_ptr() != buffer.data_ptr():
        raise NotMeasured("needs vLLM's kernels: torch made a copy instead of a view")
    return view


def accelerate_hooks(tower: Any, setting: Setting) -> Placed:
    """accelerate's `cpu_offload`: each module copied when it is called, from pageable memory.

    For the same units as all others: it cannot offload a stem whose tables are read from outside.
    """
    if importlib.util.find_spec("accelerate") is None:
        raise NotMeasured("not installed")
    from accelerate import cpu_offload

    pairs = streamable(tower, setting.files)
    own = [parameter for _, some in pairs for parameter in some.values()]
    moved = move_rest(tower, own, setting.device)
    weights = nbytes(own)
    for unit, _ in pairs:
        cpu_offload(unit.module, execution_device=setting.device, offload_buffers=False)
    return Placed(tower, moved, Host(weights, pinned=False, exact=True), weights)


def diffusers_groups(tower: Any, setting: Setting, *, leaves: bool) -> Placed:
    """diffusers' group offloading, with its prefetching stream where there is a GPU."""
    if importlib.util.find_spec("diffusers") is None:
        raise NotMeasured("not installed")
    from diffusers.hooks import apply_group_offloading

    weights = nbytes(tower.parameters())
    is_cuda = setting.device.type == "cuda"
    apply_group_offloading(
        tower,
        onload_device=setting.device,
        offload_device=torch.device("cpu"),
        offload_type="leaf_level" if leaves else "block_level",
        num_blocks_per_group=None if leaves else 1,
        non_blocking=is_cuda,
        use_stream=is_cuda,
    )
    # What it keeps on the device is its own affair: it is measured there, and not counted here.
    return Placed(tower, 0, Host(weights, pinned=is_cuda, exact=None), weights)


def _packed(tower: Any, setting: Setting) -> tuple[int, list[PackedUnit], Allocator]:
    """Pack all units; returns the bytes of the rest, which goes to the device."""
    pairs = streamable(tower, setting.files)
    moved = move_rest(tower, [p for _, own in pairs for p in own.values()], setting.device)
    allocate = Allocator(setting)
    units = [PackedUnit(unit.module, own.values(), setting.files, allocate) for unit, own in pairs]
    return moved, units, allocate


def _streamed(slots: int, *, cold: bool = False, budget: bool = False) -> Placement:
    key, title = f"streamed-{slots}", f"streamed, {slots} slot{'s' * (slots > 1)}"
    if cold:
        key, title = f"{key}-cold", f"{title}, cold"
    if budget:
        key, title = f"{key}-budget", f"{title}, some resident"
    place = partial(streamed, slots=slots, cold=cold, budget=budget)
    return Placement(key, title, place, streams=True)


RESIDENT = Placement("resident", "resident", resident)

PLACEMENTS = (
    RESIDENT,
    _streamed(3),
    _streamed(3, budget=True),
    _streamed(2),
    _streamed(1),
    _streamed(3, cold=True),
    _streamed(2, cold=True),
    Placement("serial-copy", "serial copy, unit by unit", serial_copy),
    Placement("whole-copy", "whole tower copied", whole_copy),
    Placement("resident-again", "resident, once more", resident),
    Placement("uva", "UVA zero copy", zero_copy, ours=False),
    Placement("accelerate", "accelerate hooks", accelerate_hooks, ours=False),
    Placement(
        "diffusers-block",
        "diffusers groups, blocks",
        partial(diffusers_groups, leaves=False),
        ours=False,
    ),
    Placement(
        "diffusers-leaf",
        "diffusers groups, leaves",
        partial(diffusers_groups, leaves=True),
        ours=False,
    ),
)
"""All rows, in the order of measurement.

The second resident one shows how far figures drift in a run. What may upset the device, or is not
ours, comes last.
"""
