"""The cards as NVML shows them: memory, links, NVLinks, P2P grants, power, processes.

The library is a parameter, so that a stub can stand in for `pynvml`. A call that the card or the
user's rights do not allow leaves None and a note; it never ends the reading.

Run as a program (`python -m rig.box.nvml`) it prints what it found as JSON: a driver that hangs
then hangs that process only (nvml_child.py).
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

from rig.box.facts import Card, CardProcess, Fact, Grant, Level, Link, Pair

# NVML's numbers (nvml.h). pynvml's own NVML_P2P_CAPS_INDEX_READ is a tuple by mistake.
_LEVELS: dict[int, Level] = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P_READ, _P2P_WRITE = 0, 1
_P2P_CODES = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_CLOCK_GRAPHICS, _TEMPERATURE_GPU = 0, 0
_MOST_LINKS = 36
_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


class NvmlFacts(Fact):
    """What NVML told. `cards` is None when it could not be asked; `notes` say why."""

    cards: tuple[Card, ...] | None = None
    pairs: tuple[Pair, ...] | None = None
    driver_version: str | None = None
    driver_cuda: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


class _Questions:
    """Asks one thing after the other and keeps count of what was refused."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self._refused: dict[str, list[str]] = {}

    def ask(self, what: str, name: str, *arguments: Any) -> Any:
        """The answer of one call, or None."""
        try:
            return getattr(self.library, name)(*arguments)
        except Exception as error:  # whatever one call does, the others are still asked
            self._refused.setdefault(f"{what}: {_said(error)}", []).append(name)
            return None

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"NVML does not tell the {what}" + (f" ({len(calls)} times)" if len(calls) > 1 else "")
            for what, calls in self._refused.items()
        )


def _said(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def bus_id(domain: int, rest: str) -> str:
    """A PCI address as sysfs writes it: "0000:01:00.0".

    Args:
        domain: the PCI domain.
        rest: an address with or without a domain, e.g. "00000000:01:00.0".

    Raises:
        ValueError: it is no address.
    """
    found = _ADDRESS.search(rest.lower())
    if found is None:
        raise ValueError(f"{rest!r} is no PCI address")
    return f"{domain:04x}:{found[0]}"


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    # Bits all set is NVML's "not available".
    if not isinstance(value, int) or value < 0 or value in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF):
        return None
    return value


def _watts(milliwatts: Any) -> float | None:
    number = _number(milliwatts)
    return None if number is None else number / 1000


def _positive(value: Any) -> int | None:
    return _number(value) or None


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, int) else None


def read_nvml(library: Any) -> NvmlFacts:
    """Ask NVML for all that it tells.

    Args:
        library: `pynvml`, or what stands in for it.
    """
    try:
        library.nvmlInit()
    except Exception as error:
        return NvmlFacts(notes=(f"no NVIDIA driver answers: {_said(error)}",))
    try:
        return _read(_Questions(library))
    finally:
        with contextlib.suppress(Exception):  # everything has been read
            library.nvmlShutdown()


def _read(questions: _Questions) -> NvmlFacts:
    ask = questions.ask
    cuda = _positive(ask("driver's CUDA", "nvmlSystemGetCudaDriverVersion"))
    facts = NvmlFacts(
        driver_version=_text(ask("driver version", "nvmlSystemGetDriverVersion")),
        driver_cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
    )
    count = _number(ask("number of cards", "nvmlDeviceGetCount"))
    if count is None:
        return facts.model_copy(update={"notes": questions.notes()})
    found: list[tuple[str, Any]] = []
    lost: list[str] = []
    for index in range(count):
        try:  # a card that has fallen off the bus fails here, and only here
            handle = questions.library.nvmlDeviceGetHandleByIndex(index)
            pci = questions.library.nvmlDeviceGetPciInfo(handle)
            found.append((bus_id(int(pci.domain), _text(pci.busId) or ""), handle))
        except Exception as error:
            lost.append(f"NVML does not show card {index}, which is left out: {_said(error)}")
    found.sort(key=lambda one: _order(one[0]))
    cards = [_card(questions, i, address, handle) for i, (address, handle) in enumerate(found)]
    links = [_links(questions.library, handle) for _, handle in found]
    pairs = [
        _pair(ask, (i, j), (found[i], found[j]), links)
        for i, j in itertools.combinations(range(len(found)), 2)
    ]
    return facts.model_copy(
        update={
            "cards": tuple(cards),
            "pairs": tuple(pairs),
            "notes": (*lost, *questions.notes()),
        }
    )


def _order(address: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in address.replace(".", ":").split(":"))


def _card(questions: _Questions, index: int, address: str, handle: Any) -> Card:
    ask, library = questions.ask, questions.library
    memory = ask("memory", "nvmlDeviceGetMemoryInfo", handle)
    bar1 = ask("BAR1", "nvmlDeviceGetBAR1MemoryInfo", handle)
    limits = ask("power limits", "nvmlDeviceGetPowerManagementLimitConstraints", handle)
    load = ask("utilisation", "nvmlDeviceGetUtilizationRates", handle)
    capability = ask("compute capability", "nvmlDeviceGetCudaComputeCapability", handle)
    link = Link(
        generation_now=_positive(ask("link", "nvmlDeviceGetCurrPcieLinkGeneration", handle)),
        width_now=_positive(ask("link", "nvmlDeviceGetCurrPcieLinkWidth", handle)),
        generation_max=_positive(ask("link", "nvmlDeviceGetGpuMaxPcieLinkGeneration", handle))
        or _positive(ask("link", "nvmlDeviceGetMaxPcieLinkGeneration", handle)),
        width_max=_positive(ask("link", "nvmlDeviceGetMaxPcieLinkWidth", handle)),
    )
    return Card(
        index=index,
        bus_id=address,
        name=_text(ask("name", "nvmlDeviceGetName", handle)),
        uuid=_text(ask("UUID", "nvmlDeviceGetUUID", handle)),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        memory_bytes=None if memory is None else _number(memory.total),
        memory_free_bytes=None if memory is None else _number(memory.free),
        bar1_bytes=None if bar1 is None else _positive(bar1.bar1Total),
        link=link,
        mig=_mig(library, handle),
        display_active=_flag(ask("display", "nvmlDeviceGetDisplayActive", handle)),
        persistence=_flag(ask("persistence mode", "nvmlDeviceGetPersistenceMode", handle)),
        power_limit_w=_watts(ask("power limit", "nvmlDeviceGetPowerManagementLimit", handle)),
        power_default_w=_watts(
            ask("default power limit", "nvmlDeviceGetPowerManagementDefaultLimit", handle)
        ),
        power_max_w=None if limits is None else _watts(limits[1]),
        # NVML has no call that tells whether clocks are locked: graphics_clock_locked_mhz stays
        # unknown.
        graphics_clock_mhz=_number(ask("clock", "nvmlDeviceGetClockInfo", handle, _CLOCK_GRAPHICS)),
        graphics_clock_max_mhz=_number(
            ask("clock", "nvmlDeviceGetMaxClockInfo", handle, _CLOCK_GRAPHICS)
        ),
        utilisation_percent=None if load is None else _number(load.gpu),
        temperature_c=_number(
            ask("temperature", "nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU)
        ),
        processes=_processes(ask, handle),
    )


def _mig(library: Any, handle: Any) -> bool | None:
    """Whether MIG is on. A card that does not support it says so: it is off there."""
    try:
        return bool(library.nvmlDeviceGetMigMode(handle)[0])
    except Exception as error:
        return False if type(error).__name__.endswith("_NotSupported") else None


def _processes(ask: Callable[..., Any], handle: Any) -> tuple[CardProcess, ...] | None:
    compute = ask("processes", "nvmlDeviceGetComputeRunningProcesses", handle)
    graphics = ask("processes", "nvmlDeviceGetGraphicsRunningProcesses", handle)
    if compute is None and graphics is None:
        return None
    found: dict[int, CardProcess] = {}
    for process in (*(compute or ()), *(graphics or ())):
        pid = int(process.pid)
        if pid not in found or found[pid].memory_bytes is None:
            name = _text(ask("names of processes", "nvmlSystemGetProcessName", pid))
            memory = _number(process.usedGpuMemory)
            found[pid] = CardProcess(pid=pid, name=name, memory_bytes=memory)
    return tuple(found[pid] for pid in sorted(found))


def _links(library: Any, handle: Any) -> list[str] | None:
    """The address at the far end of each NVLink that is up; None when the card does not say."""
    ends: list[str] = []
    for link in range(_MOST_LINKS):
        try:
            if not library.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
            ends.append(bus_id(int(remote.domain), _text(remote.busId) or ""))
        except Exception as error:
            # Past the last link it is an invalid argument; a card without NVLink has none at all.
            # Neither is worth a note: it is the usual answer.
            name = type(error).__name__
            if name.endswith(("_InvalidArgument", "_NotSupported")):
                break
            return None
    return ends


def _pair(
    ask: Callable[..., Any],
    numbers: tuple[int, int],
    cards: tuple[tuple[str, Any], tuple[str, Any]],
    links: list[list[str] | None],
) -> Pair:
    (here, first), (there, second) = cards
    ends = links[numbers[0]]
    other = links[numbers[1]]
    count = None if ends is None or other is None else min(ends.count(there), other.count(here))
    told = ask("topology", "nvmlDeviceGetTopologyCommonAncestor", first, second)
    level = "NV" if count else _LEVELS.get(told)
    codes = [
        ask("P2P grants", "nvmlDeviceGetP2PStatus", one, two, way)
        for one, two in ((first, second), (second, first))
        for way in (_P2P_READ, _P2P_WRITE)
    ]
    grant, why = _grant([_P2P_CODES.get(code, "U") for code in codes])
    return Pair(
        first=numbers[0], second=numbers[1], level=level, nvlinks=count, p2p=grant, p2p_why=why
    )


def _grant(codes: list[str]) -> tuple[Grant | None, str | None]:
    """One grant of four: both directions, reading and writing."""
    refused = [code for code in codes if code not in ("OK", "U")]
    if refused:
        return "refused", refused[0]
    return (None, None) if "U" in codes else ("granted", "OK")


def main() -> None:
    """Print the facts of this machine's NVML as JSON."""
    sys.stdout.write(read_nvml(importlib.import_module("pynvml")).model_dump_json())


if __name__ == "__main__":
    main()
