"""A faked box: a tree of /sys and /proc files below a folder, and NVML's stand-in.

    box = fake_box(tmp_path, cards=four_3090s())          # four cards on a workstation board
    facts = read_box(box.system, box.nvml)

Change a card with `dataclasses.replace`, the host with the arguments of `fake_box`, and any file
afterwards with `box.write("/proc/cmdline", "iommu=pt")`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rig.box.system import System
from tests.box.fake_nvml import GIB, FakeNvml, NvmlCard

AMD, INTEL, NVIDIA, PLX, QEMU = 0x1022, 0x8086, 0x10DE, 0x10B5, 0x1B36
SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe"}
SPEEDS |= {5: "32.0 GT/s PCIe"}


@dataclass(frozen=True)
class FakePort:
    """A bridge above a card.

    Args:
        acs: whether it redirects peer traffic; None: it has no ACS capability.
        config_bytes: how much of its configuration space can be read (64 without root).
    """

    address: str
    vendor: int = AMD
    device: int = 0x1483
    generation: int = 4
    width: int = 16
    acs: bool | None = False
    config_bytes: int = 4096


@dataclass(frozen=True)
class FakeCard:
    """One card: where it hangs in sysfs, and what NVML says of it (`nvml.bus_id` is where)."""

    nvml: NvmlCard
    ports: tuple[FakePort, ...] = ()
    root_bus: str = "pci0000:00"
    numa_node: int = 0
    device: int = 0x2204
    driver: str | None = "nvidia"
    width_max: int = 16
    bar1: int | None = None  # in the `resource` file; None: what NVML says
    in_sysfs: bool = True
    in_nvml: bool = True


@dataclass
class FakeBox:
    """What was made: hand `system` and `nvml` to read_box."""

    root: Path
    system: System
    nvml: FakeNvml

    def write(self, absolute: str, text: str | bytes) -> None:
        """Put a file into the faked system."""
        _write(self.root / absolute.lstrip("/"), text)


def four_3090s(count: int = 4) -> tuple[FakeCard, ...]:
    """3090s of a workstation board, each below its own root port of one CPU."""
    return tuple(
        FakeCard(
            nvml=NvmlCard(bus_id=f"0000:{0x21 + 0x20 * i:02x}:00.0"),
            ports=(FakePort(address=f"0000:{0x20 + 0x20 * i:02x}:01.1"),),
            root_bus=f"pci0000:{0x20 + 0x20 * i:02x}",
        )
        for i in range(count)
    )


def two_desktop_3090s() -> tuple[FakeCard, ...]:
    """Two 3090s of a desktop board: one on the CPU at x16, one behind an AMD chipset at x4."""
    chipset = (
        FakePort("0000:00:01.2", device=0x1483, width=4),
        FakePort("0000:02:00.0", device=0x57AD, width=4, acs=None),
        FakePort("0000:03:01.0", device=0x57A3, width=4),
    )
    return (
        FakeCard(NvmlCard("0000:0a:00.0"), (FakePort("0000:00:03.1"),), numa_node=-1),
        FakeCard(NvmlCard("0000:04:00.0", width_now=4, width_max=4), chipset, numa_node=-1),
    )


@dataclass(frozen=True)
class FakeHost:
    """The machine around the cards. `iommu_type` "": there is no IOMMU."""

    kernel: str = "6.8.0-45-generic"
    cmdline: str = "root=/dev/sda1 quiet"
    cpu_flags: str = "fpu sse2"
    vendor: str = "ASRockRack"
    memory: int = 128 * GIB
    available: int = 120 * GIB
    memlock: str = "unlimited"
    shm: tuple[int, int] = (64 * GIB, 64 * GIB)
    tmp: tuple[int, int] = (500 * GIB, 400 * GIB)
    numa_nodes: Sequence[str] = ("0-31",)
    iommu_type: str = ""
    cgroup: str = "0::/user.slice\n"
    cgroup_files: Mapping[str, str] = field(default_factory=dict)
    cgroup_mount: str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    files: Mapping[str, str] = field(default_factory=dict)
    ray: Mapping[int, tuple[str, int]] = field(default_factory=dict)  # pid: (program, uid)
    driver: str | None = "595.58.03"  # of /sys/module; None: not loaded


def fake_box(
    root: Path,
    cards: Sequence[FakeCard] = (),
    host: FakeHost | None = None,
    nvml: FakeNvml | None = None,
    environment: Mapping[str, str] | None = None,
) -> FakeBox:
    """Make the tree below `root`.

    Args:
        nvml: its own stand-in; made from the cards if None.
        environment: this process's variables; HOME is /home/user of the tree unless said.
    """
    host = host or FakeHost()
    _host_files(root, host)
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for group, card in enumerate(card for card in cards if card.in_sysfs):
        _card_files(root, card, group if host.iommu_type else None)
        if host.iommu_type:
            _write(root / f"sys/kernel/iommu_groups/{group}/type", host.iommu_type + "\n")
    sizes = {root / "dev/shm": host.shm, root / "tmp": host.tmp}
    system = System(
        root=root,
        environment={"HOME": str(root / "home/user"), **(environment or {})},
        size_and_free=sizes.get,
    )
    library = nvml or FakeNvml([card.nvml for card in cards if card.in_nvml])
    return FakeBox(root, system, library)


def _host_files(root: Path, host: FakeHost) -> None:
    table: dict[str, str] = {
        "proc/sys/kernel/osrelease": host.kernel + "\n",
        "proc/cmdline": host.cmdline + "\n",
        "proc/cpuinfo": f"processor\t: 0\nflags\t\t: {host.cpu_flags}\n",
        "proc/meminfo": f"MemTotal: {host.memory // 1024} kB\n"
        f"MemFree: 1 kB\nMemAvailable: {host.available // 1024} kB\n",
        "proc/self/status": "Name:\trig\nCpus_allowed_list:\t0-31\n",
        "proc/self/limits": "Limit                     Soft Limit           Hard Limit\n"
        f"Max locked memory         {host.memlock:<20} {host.memlock:<20} bytes\n",
        "proc/self/cgroup": host.cgroup,
        "proc/self/mountinfo": host.cgroup_mount,
        "sys/class/dmi/id/sys_vendor": host.vendor + "\n",
        "etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
        "sys/fs/cgroup/user.slice/memory.max": "max\n",
        **{path.lstrip("/"): text for path, text in host.cgroup_files.items()},
        **{path.lstrip("/"): text for path, text in host.files.items()},
    }
    if host.driver is not None:
        table["sys/module/nvidia/version"] = host.driver + "\n"
    for node, cpus in enumerate(host.numa_nodes):
        folder = f"sys/devices/system/node/node{node}"
        table[f"{folder}/cpulist"] = cpus + "\n"
        share = host.memory // len(host.numa_nodes) // 1024
        table[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {share} kB\n"
    for pid, (program, uid) in host.ray.items():
        table[f"proc/{pid}/comm"] = program + "\n"
        table[f"proc/{pid}/status"] = f"Name:\t{program}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    for path, text in table.items():
        _write(root / path, text)
    for folder in ("sys/class/iommu", "sys/kernel/iommu_groups"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    if host.iommu_type:
        _write(root / "sys/class/iommu/ivhd0/uevent", "")


def _card_files(root: Path, card: FakeCard, group: int | None) -> None:
    folder = root / "sys/devices" / card.root_bus
    for port in card.ports:
        folder = folder / port.address
        _device_files(folder, port.vendor, port.device, 0x060400, card.numa_node)
        _write(folder / "max_link_speed", SPEEDS[port.generation] + "\n")
        _write(folder / "max_link_width", f"{port.width}\n")
        _write(folder / "config", config_space(port.acs)[: port.config_bytes])
        _link(root / "sys/bus/pci/devices" / port.address, folder)
    nvml = card.nvml
    folder = folder / nvml.bus_id
    _device_files(folder, NVIDIA, card.device, 0x030000, card.numa_node)
    _write(folder / "current_link_speed", SPEEDS[nvml.generation_now] + "\n")
    _write(folder / "max_link_speed", SPEEDS[nvml.generation_max] + "\n")
    _write(folder / "current_link_width", f"{nvml.width_now}\n")
    _write(folder / "max_link_width", f"{card.width_max}\n")
    bar1 = nvml.bar1 if card.bar1 is None else card.bar1
    start = 0x2000000000
    window = (start, start + bar1 - 1) if bar1 else (0, 0)
    rows = [(0xF6000000, 0xF6FFFFFF, 0x40200), (*window, 0x14220C), (0, 0, 0)]
    _write(folder / "resource", "".join(f"0x{a:016x} 0x{b:016x} 0x{c:016x}\n" for a, b, c in rows))
    _link(root / "sys/bus/pci/devices" / nvml.bus_id, folder)
    if card.driver:
        _link(folder / "driver", root / "sys/bus/pci/drivers" / card.driver)
    if group is not None:
        _link(folder / "iommu_group", root / f"sys/kernel/iommu_groups/{group}")


def _device_files(folder: Path, vendor: int, device: int, kind: int, node: int) -> None:
    _write(folder / "vendor", f"0x{vendor:04x}\n")
    _write(folder / "device", f"0x{device:04x}\n")
    _write(folder / "class", f"0x{kind:06x}\n")
    _write(folder / "numa_node", f"{node}\n")


def config_space(acs: bool | None) -> bytes:
    """A port's 4096 bytes: an AER capability first, then ACS if it has any."""
    space = bytearray(4096)
    following = 0x148 if acs is not None else 0
    space[0x100:0x104] = (0x0001 | 1 << 16 | following << 20).to_bytes(4, "little")
    if acs is not None:
        space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x14C:0x150] = (0x001F | (0x001D if acs else 0x0000) << 16).to_bytes(4, "little")
    return bytes(space)


def _write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target)
