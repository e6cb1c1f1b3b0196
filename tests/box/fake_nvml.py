"""A stand-in for `pynvml` with cards of our making. It raises pynvml's own errors.

A call that is not defined here is not supported, as on a card that lacks the feature: the real
library is never reached.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30
MIB = 1 << 20
PIX, PXB, PHB, NODE, SYS = 10, 20, 30, 40, 50
OK, CNS, GNS, TNS, DR, NS, UNKNOWN = range(7)

_pynvml: Any = importlib.import_module("pynvml")


def nvml_error(name: str) -> Exception:
    """One of pynvml's errors by its ending, e.g. "NotSupported"."""
    error: Exception = getattr(_pynvml, f"NVMLError_{name}")()
    return error


@dataclass(frozen=True)
class FakeProcess:
    """A process on a card. `memory` in bytes, None where the driver does not say."""

    pid: int
    memory: int | None
    name: str = "python"
    graphics: bool = False


@dataclass
class NvmlCard:
    """What NVML would say of one card. Powers in watts, sizes in bytes."""

    bus_id: str
    name: str = "NVIDIA GeForce RTX 3090"
    uuid: str = ""
    capability: tuple[int, int] = (8, 6)
    memory: int = 24 * GIB
    free: int = 24 * GIB - 400 * MIB
    bar1: int = 32 * GIB
    generation_now: int = 1  # at idle
    generation_max: int = 4
    width_now: int = 16
    width_max: int = 16
    display: bool = False
    persistence: bool = True
    power: float = 350.0
    power_default: float = 350.0
    power_max: float = 390.0
    clock: int = 210
    clock_max: int = 2100
    utilisation: int = 0
    temperature: int = 35
    mig: bool | None = None
    processes: Sequence[FakeProcess] = ()
    lost: bool = False  # fallen off the bus


@dataclass
class FakeNvml:
    """The library. Pairs are keyed by (i, j) with i < j, in the order of `cards`.

    Args:
        levels: the common ancestor of a pair, PHB unless said.
        p2p: the status of a pair, both ways, GNS unless said.
        nvlinks: how many NVLinks join a pair.
        refuse: calls that raise, by name, and with which error ("NotSupported").
        init: the error of nvmlInit, e.g. "LibraryNotFound", "DriverNotLoaded".
    """

    cards: Sequence[NvmlCard]
    driver: str = "595.58.03"
    cuda: int = 13020
    levels: Mapping[tuple[int, int], int] = field(default_factory=dict)
    p2p: Mapping[tuple[int, int], int] = field(default_factory=dict)
    nvlinks: Mapping[tuple[int, int], int] = field(default_factory=dict)
    refuse: Mapping[str, str] = field(default_factory=dict)
    init: str | None = None
    shut_down: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            error = object.__getattribute__(self, "refuse").get(name)
            if error is not None:
                return lambda *arguments: _raise(error)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            return lambda *arguments: _raise("NotSupported")
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        if self.init is not None:
            _raise(self.init)

    def nvmlShutdown(self) -> None:
        self.shut_down += 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> NvmlCard:
        if self.cards[index].lost:
            _raise("GpuIsLost")
        return self.cards[index]

    def nvmlDeviceGetPciInfo(self, card: NvmlCard) -> SimpleNamespace:
        domain, _, rest = card.bus_id.partition(":")
        return SimpleNamespace(
            domain=int(domain, 16), busId=f"{int(domain, 16):08X}:{rest}".upper()
        )

    def nvmlDeviceGetName(self, card: NvmlCard) -> str:
        return card.name

    def nvmlDeviceGetUUID(self, card: NvmlCard) -> str:
        return card.uuid or f"GPU-{self.cards.index(card):08x}-0000-0000-0000-000000000000"

    def nvmlDeviceGetCudaComputeCapability(self, card: NvmlCard) -> tuple[int, int]:
        return card.capability

    def nvmlDeviceGetMemoryInfo(self, card: NvmlCard) -> SimpleNamespace:
        return SimpleNamespace(total=card.memory, free=card.free, used=card.memory - card.free)

    def nvmlDeviceGetBAR1MemoryInfo(self, card: NvmlCard) -> SimpleNamespace:
        return SimpleNamespace(bar1Total=card.bar1, bar1Free=card.bar1, bar1Used=0)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, card: NvmlCard) -> int:
        return card.generation_now

    def nvmlDeviceGetGpuMaxPcieLinkGeneration(self, card: NvmlCard) -> int:
        return card.generation_max

    def nvmlDeviceGetMaxPcieLinkGeneration(self, card: NvmlCard) -> int:
        return card.generation_max

    def nvmlDeviceGetCurrPcieLinkWidth(self, card: NvmlCard) -> int:
        return card.width_now

    def nvmlDeviceGetMaxPcieLinkWidth(self, card: NvmlCard) -> int:
        return card.width_max

    def nvmlDeviceGetDisplayActive(self, card: NvmlCard) -> int:
        return int(card.display)

    def nvmlDeviceGetPersistenceMode(self, card: NvmlCard) -> int:
        return int(card.persistence)

    def nvmlDeviceGetPowerManagementLimit(self, card: NvmlCard) -> int:
        return int(card.power * 1000)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, card: NvmlCard) -> int:
        return int(card.power_default * 1000)

    def nvmlDeviceGetPowerManagementLimitConstraints(self, card: NvmlCard) -> list[int]:
        return [100_000, int(card.power_max * 1000)]

    def nvmlDeviceGetClockInfo(self, card: NvmlCard, kind: int) -> int:
        return card.clock

    def nvmlDeviceGetMaxClockInfo(self, card: NvmlCard, kind: int) -> int:
        return card.clock_max

    def nvmlDeviceGetUtilizationRates(self, card: NvmlCard) -> SimpleNamespace:
        return SimpleNamespace(gpu=card.utilisation, memory=0)

    def nvmlDeviceGetTemperature(self, card: NvmlCard, sensor: int) -> int:
        return card.temperature

    def nvmlDeviceGetMigMode(self, card: NvmlCard) -> list[int]:
        if card.mig is None:
            _raise("NotSupported")
        return [int(bool(card.mig)), int(bool(card.mig))]

    def nvmlDeviceGetComputeRunningProcesses(self, card: NvmlCard) -> list[SimpleNamespace]:
        return [_process(one) for one in card.processes if not one.graphics]

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: NvmlCard) -> list[SimpleNamespace]:
        return [_process(one) for one in card.processes if one.graphics]

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        return next(p.name for card in self.cards for p in card.processes if p.pid == pid)

    def nvmlDeviceGetTopologyCommonAncestor(self, first: NvmlCard, second: NvmlCard) -> int:
        return self.levels.get(self._key(first, second), PHB)

    def nvmlDeviceGetP2PStatus(self, first: NvmlCard, second: NvmlCard, way: int) -> int:
        return self.p2p.get(self._key(first, second), GNS)

    def nvmlDeviceGetNvLinkState(self, card: NvmlCard, link: int) -> int:
        ends = self._ends(card)
        if not ends:
            _raise("NotSupported")
        if link >= 4:  # a 3090 has four
            _raise("InvalidArgument")
        return int(link < len(ends))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card: NvmlCard, link: int) -> SimpleNamespace:
        return self.nvmlDeviceGetPciInfo(self._ends(card)[link])

    def _ends(self, card: NvmlCard) -> list[NvmlCard]:
        here = self.cards.index(card)
        found: list[NvmlCard] = []
        for (first, second), count in self.nvlinks.items():
            if here in (first, second):
                found += [self.cards[second if here == first else first]] * count
        return found

    def _key(self, first: NvmlCard, second: NvmlCard) -> tuple[int, int]:
        one, other = sorted((self.cards.index(first), self.cards.index(second)))
        return one, other


def _process(one: FakeProcess) -> SimpleNamespace:
    return SimpleNamespace(pid=one.pid, usedGpuMemory=one.memory)


def _raise(name: str) -> Any:
    raise nvml_error(name)
