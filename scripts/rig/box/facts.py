"""What was seen of a box. Pure data: whoever reads a system fills it, whoever judges reads it.

`None` always means *not known*: it could not be read, or nobody looked. It is never a "no".
Sizes are bytes, powers watts, clocks MHz. Cards are numbered in the order of their PCI addresses,
which is CUDA's order under CUDA_DEVICE_ORDER=PCI_BUS_ID, and NVML's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """A frozen record; unknown keys are refused, so that a misspelt one is no silent unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Link(Fact):
    """The PCIe link of a card. The width now is right at idle, the generation only under load.

    `slot_*` is what the port above the card can do: less than the card's own means that the slot
    is the limit. `behind_chipset`: the way to the CPU shares the chipset's uplink.
    """

    generation_now: int | None = None
    generation_max: int | None = None
    width_now: int | None = None
    width_max: int | None = None
    slot_generation_max: int | None = None
    slot_width_max: int | None = None
    behind_chipset: bool | None = None


class CardProcess(Fact):
    """A process that holds memory of a card."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None


class Card(Fact):
    """One GPU.

    `bus_id` is "0000:01:00.0", small letters. `bridges` are the bus ids from the root port down to
    the port above the card. `numa_node` is -1 when the platform says that there is no affinity.
    `mig`: the card is cut into MIG instances. NVML has no call for locked clocks, so
    `graphics_clock_locked_mhz` is unknown unless somebody else tells it.
    """

    index: int
    bus_id: str
    name: str | None = None
    uuid: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    bar1_bytes: int | None = None
    link: Link = Link()
    numa_node: int | None = None
    bridges: tuple[str, ...] | None = None
    display_active: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_max_w: float | None = None
    graphics_clock_mhz: int | None = None
    graphics_clock_max_mhz: int | None = None
    graphics_clock_locked_mhz: int | None = None
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    processes: tuple[CardProcess, ...] | None = None


Level = Literal["NV", "PIX", "PXB", "PHB", "NODE", "SYS"]
Grant = Literal["granted", "refused"]


class Pair(Fact):
    """How two cards are joined. `first` < `second`.

    `level` as in `nvidia-smi topo -m`; `nvlinks` are counted when it is "NV". A `p2p` of
    "granted" is the driver's word, not a delivery; `p2p_why` is the driver's code (OK, GNS, ...).
    """

    first: int
    second: int
    level: Level | None = None
    nvlinks: int | None = None
    p2p: Grant | None = None
    p2p_why: str | None = None


class Bridge(Fact):
    """A PCIe port above a card. `acs_redirects`: it sends peer traffic up to the root complex."""

    bus_id: str
    acs_redirects: bool | None = None


class NumaNode(Fact):
    """A memory node of the host."""

    node: int
    cpus: tuple[int, ...] = ()
    memory_bytes: int | None = None


class RayProcess(Fact):
    """A Ray head or worker node (raylet, gcs_server) that already runs on the box."""

    pid: int
    user: str | None = None
    program: str = "raylet"


class KernelEvent(Fact):
    """A kind of trouble that the kernel's log names, counted over this boot.

    `where` is the PCI address of the device, or None where the line names none. `code` is the Xid's
    number. `text` is the rest of the last such line: of Xid 154 only the last one still holds.
    """

    kind: Literal["xid", "iommu-fault", "pcie-error"]
    where: str | None = None
    code: int | None = None
    text: str = ""
    count: int = 1


class Host(Fact):
    """The machine around the cards. `cgroup_limit_bytes` and `memlock_bytes` are -1: unlimited."""

    driver_version: str | None = None
    driver_cuda: tuple[int, int] | None = None
    kernel: str | None = None
    iommu: Literal["off", "passthrough", "translated"] | None = None
    virtual_machine: bool | None = None
    wsl: bool | None = None
    container: str | None = None  # "docker", "podman", ..., or "" for none
    cpus: int | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    memlock_bytes: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    tmp_free_bytes: int | None = None
    numa_nodes: tuple[NumaNode, ...] | None = None
    ray: tuple[RayProcess, ...] | None = None
    p2p_cache_files: tuple[str, ...] | None = None  # vLLM's own files, by path
    driver_refused: bool | None = None  # a pasted nvidia-smi says that it reached no driver
    kernel_events: tuple[KernelEvent, ...] | None = None  # None: its log could not be read


class Box(Fact):
    """Everything seen of one box.

    `cards` is None when nobody could look (no driver), () when the driver shows none. `source`
    says where the facts come from, e.g. "this machine" or the name of a pasted text. `notes` are
    sentences on what could not be read and why.
    """

    source: str
    cards: tuple[Card, ...] | None = None
    pairs: tuple[Pair, ...] | None = None
    bridges: tuple[Bridge, ...] | None = None
    host: Host = Host()
    notes: tuple[str, ...] = ()
