# mypy: disable-error-code="import-not-found"
"""The machine that measures: its names, its bus, its clock and its memory."""

from __future__ import annotations

import ctypes
import gc
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers

from bench_towers.streamer_files import StreamerFiles

_BUS_BYTES = 256 * 2**20
_HOST_POINTERS = 91
"""CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM of the driver's interface."""
_T = TypeVar("_T")


class Machine:
    """A compute device, and how time and memory are measured on it.

    Args:
        device: a CUDA device, or the CPU, where times mean nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked for."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def timed(self, work: Callable[[], _T]) -> tuple[float, _T]:
        """Seconds until the compute stream has done some work, and what the work returned.

        What other streams still copy then is not counted: a ring that fills for the next encode
        delays nobody.
        """
        self.synchronize()
        if not self.is_cuda:
            begin = time.perf_counter()
            result = work()
            return time.perf_counter() - begin, result
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3, result

    def allocated(self) -> int | None:
        """Bytes of tensors on the device now; None where that is not measured."""
        if not self.is_cuda:
            return None
        gc.collect()
        self.synchronize()
        return int(torch.cuda.memory_allocated(self.device))

    def forget_peak(self) -> None:
        """Begin to measure the peak of the device's memory anew."""
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> int | None:
        """Most bytes of tensors on the device since `forget_peak`."""
        return int(torch.cuda.max_memory_allocated(self.device)) if self.is_cuda else None

    def tidy(self) -> None:
        """Give back what nothing holds any more."""
        self.synchronize()  # a copy may still read host memory that is about to go
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()


def find_device(wanted: str) -> torch.device:
    """The device to measure on: `auto`, `cuda` (with or without a number) or `cpu`.

    Raises:
        ValueError: there is no such device.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(wanted)
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(f"{device.type} is neither cuda nor cpu")
    if not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device")
    device = torch.device("cuda", device.index or 0)
    if device.index >= torch.cuda.device_count():
        raise ValueError(f"torch sees {torch.cuda.device_count()} CUDA devices")
    torch.cuda.set_device(device)
    return device


def measure_bus(machine: Machine, files: StreamerFiles) -> dict[str, Any]:
    """Copies from pinned host memory, alone on the bus.

    Returns:
        GB/s (1e9 bytes a second), and what the memory was that the copies read.
    """
    buffer = files.host_memory.allocate(_BUS_BYTES, pin=machine.is_cuda)
    target = torch.empty(_BUS_BYTES, dtype=torch.uint8, device=machine.device)
    buffer.tensor.fill_(1)  # pages that nobody wrote are one page of zeros

    def copy() -> None:
        target.copy_(buffer.tensor, non_blocking=True)

    copy()
    seconds = statistics.median(machine.timed(copy)[0] for _ in range(7))
    return {
        "h2d_gb_per_s": _BUS_BYTES / max(seconds, 1e-9) / 1e9,
        "pinned": bool(buffer.pinned),
        "exact": bool(buffer.exact),
        "reason": str(buffer.reason),
        # Read now: a link that has nothing to do slows down.
        "link": read_link(machine.device),
    }


def read_link(device: torch.device, sysfs: Path = Path("/sys")) -> str:
    """Width and speed of a card's PCIe link now, and the most it can do; or why not known."""
    if device.type != "cuda":
        return "none: the CPU computes"
    card = torch.cuda.get_device_properties(device)
    try:
        bus = f"{card.pci_domain_id:04x}:{card.pci_bus_id:02x}:{card.pci_device_id:02x}.0"
        folder = sysfs / "bus/pci/devices" / bus
        width, most_width, speed, most_speed = (
            (folder / f"{which}_link_{what}").read_text().strip()
            for what in ("width", "speed")
            for which in ("current", "max")
        )
    except (OSError, AttributeError) as error:
        return f"unknown ({error})"
    return f"x{width} of x{most_width}, {speed} of {most_speed}"


def reads_host_addresses(device: torch.device) -> bool:
    """Whether kernels may use the host's own address of memory that is registered with the driver.

    Where they may not, to try it would be the end of all CUDA work of this process.
    """
    value = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    code = driver.cuDeviceGetAttribute(ctypes.byref(value), _HOST_POINTERS, device.index or 0)
    return code == 0 and value.value == 1


def describe(machine: Machine, files: StreamerFiles) -> dict[str, str]:
    """What a reader must know to compare figures with those of another machine."""
    facts = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "streamer": f"sha256 {files.digest[:16]} (of its files)",
    }
    if not machine.is_cuda:
        return {"card": "none: the CPU computes", "driver": "none"} | facts
    card = torch.cuda.get_device_properties(machine.device)
    return {
        "card": f"{card.name}, {card.total_memory / 2**30:.1f} GiB",
        "driver": _driver_version(),
        "cuda": str(torch.version.cuda),
    } | facts


def _driver_version() -> str:
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        pass
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return "unknown"
    words = first.split()
    return next((word for word in words if word[:1].isdigit() and "." in word), first)
