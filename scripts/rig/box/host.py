"""The machine around the cards: kernel, memory and its limits, NUMA, containers, Ray."""

from __future__ import annotations

import re
from pathlib import Path

from rig.box.cgroup import UNLIMITED, memory_limit
from rig.box.facts import Host, NumaNode, RayProcess
from rig.box.system import System, numbers_of_list, whole_number

_RAY_PROGRAMS = ("raylet", "gcs_server")
_VIRTUAL_VENDORS = (
    *("QEMU", "VMware", "Xen", "innotek", "Parallels", "Bochs", "OpenStack", "KubeVirt"),
    *("Amazon EC2", "Google Compute Engine", "Virtual Machine", "Proxmox", "Nutanix", "BHYVE"),
)
_CONTAINER_MARKS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("containerd", "containerd"),
)


def read_host(system: System) -> Host:
    """All facts of the host but the IOMMU's mode and what only NVML tells."""
    kernel = (system.text("/proc/sys/kernel/osrelease") or "").strip() or None
    limit = memory_limit(system)
    shm = system.size_and_free(system.path("/dev/shm"))
    tmp = system.size_and_free(system.path(system.environment.get("TMPDIR") or "/tmp"))
    return Host(
        driver_version=driver_version(system),
        kernel=kernel,
        virtual_machine=is_virtual(system),
        wsl=None if kernel is None else "microsoft" in kernel.lower(),
        container=container(system),
        cpus=usable_cpus(system),
        memory_bytes=_meminfo(system, "MemTotal"),
        memory_available_bytes=_meminfo(system, "MemAvailable"),
        cgroup_limit_bytes=None if limit is None else limit.limit,
        cgroup_used_bytes=None if limit is None else limit.used,
        memlock_bytes=memlock(system),
        shm_bytes=None if shm is None else shm[0],
        shm_free_bytes=None if shm is None else shm[1],
        tmp_free_bytes=None if tmp is None else tmp[1],
        numa_nodes=numa_nodes(system),
        ray=ray_processes(system),
        p2p_cache_files=p2p_cache_files(system),
    )


def driver_version(system: System) -> str | None:
    """The NVIDIA kernel module's version, loaded now."""
    plain = (system.text("/sys/module/nvidia/version") or "").strip()
    if plain:
        return plain
    told = system.text("/proc/driver/nvidia/version") or ""
    found = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", told)
    return found[1] if found else None


def is_virtual(system: System) -> bool | None:
    """Whether this kernel runs in a virtual machine."""
    flags = re.search(r"^flags\s*:(.*)$", system.text("/proc/cpuinfo") or "", re.MULTILINE)
    if flags and "hypervisor" in flags[1].split():
        return True
    maker = system.text("/sys/class/dmi/id/sys_vendor")
    product = system.text("/sys/class/dmi/id/product_name")
    told = f"{maker or ''} {product or ''}"
    if any(name.lower() in told.lower() for name in _VIRTUAL_VENDORS):
        return True
    # x86 shows a guest by that flag; other processors have no such sign.
    return False if flags else None


def container(system: System) -> str | None:
    """What contains this process: "docker", "podman", ...; "" for nothing; None: unknown."""
    named = (system.text("/run/systemd/container") or "").strip()
    if named:
        return named
    variables = (system.text("/proc/1/environ") or "").split("\0")
    told = [value for name, _, value in (one.partition("=") for one in variables)
            if name == "container" and value]  # fmt: skip
    if told:
        return told[0]
    if system.exists("/run/.containerenv"):
        return "podman"
    if system.environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if system.exists("/.dockerenv"):
        return "docker"
    groups = system.text("/proc/self/cgroup") or ""
    for mark, name in _CONTAINER_MARKS:
        if mark in groups:
            return name
    # A process that sees itself at the very top may be in a container with its own namespace.
    at_top = all(line.endswith(":/") for line in groups.splitlines())
    return None if at_top else ""


def usable_cpus(system: System) -> int | None:
    """The processors that this process may use."""
    status = system.text("/proc/self/status") or ""
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    return len(numbers_of_list(allowed[1])) or None if allowed else None


def memlock(system: System) -> int | None:
    """The soft limit of locked memory in bytes; -1: unlimited."""
    for line in (system.text("/proc/self/limits") or "").splitlines():
        if line.startswith("Max locked memory"):
            soft = (line[len("Max locked memory") :].split() or [""])[0]
            return UNLIMITED if soft == "unlimited" else whole_number(soft)
    return None


def numa_nodes(system: System) -> tuple[NumaNode, ...] | None:
    """The memory nodes with their processors and bytes."""
    names = system.names("/sys/devices/system/node")
    if names is None:
        return None
    found: list[NumaNode] = []
    for name in names:
        if not re.fullmatch(r"node\d+", name):
            continue
        folder = f"/sys/devices/system/node/{name}"
        total = re.search(r"MemTotal:\s*(\d+) kB", system.text(f"{folder}/meminfo") or "")
        found.append(
            NumaNode(
                node=int(name[4:]),
                cpus=numbers_of_list(system.text(f"{folder}/cpulist")),
                memory_bytes=int(total[1]) * 1024 if total else None,
            )
        )
    return tuple(sorted(found, key=lambda one: one.node))


def ray_processes(system: System) -> tuple[RayProcess, ...] | None:
    """Ray's node processes that run, and whose they are."""
    if system.names("/proc") is None:
        return None
    users = _users(system)
    found: list[RayProcess] = []
    for pid in sorted(system.processes()):
        program = (system.text(f"/proc/{pid}/comm") or "").strip()
        if program in _RAY_PROGRAMS:
            status = system.text(f"/proc/{pid}/status") or ""
            uid = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
            user = users.get(uid[1], f"uid {uid[1]}") if uid else None
            found.append(RayProcess(pid=pid, user=user, program=program))
    return tuple(found)


def _users(system: System) -> dict[str, str]:
    rows = (line.split(":") for line in (system.text("/etc/passwd") or "").splitlines())
    return {row[2]: row[0] for row in rows if len(row) > 2}


def vllm_cache(system: System) -> Path | None:
    """The folder of vLLM's caches, by vLLM's own rule."""
    environment = system.environment
    home = environment.get("HOME")
    named = environment.get("VLLM_CACHE_ROOT")
    if named is None:
        above = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
        if above is None:
            return None
        named = f"{above}/vllm"
    if named.startswith("~/") and home:
        named = home + named[1:]
    return Path(named)


def p2p_cache_files(system: System) -> tuple[str, ...] | None:
    """The files in which vLLM keeps which cards reach which. They outlive a change of cards."""
    folder = vllm_cache(system)
    if folder is None:
        return None
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    return tuple(
        str(folder / name)
        for name in names
        if name.startswith("gpu_p2p_access_cache_for_") and name.endswith(".json")
    )


def _meminfo(system: System, name: str) -> int | None:
    """A line of /proc/meminfo in bytes."""
    told = system.text("/proc/meminfo") or ""
    found = re.search(rf"^{name}:\s+(\d+) kB$", told, re.MULTILINE)
    return int(found[1]) * 1024 if found else None
