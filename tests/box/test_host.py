"""Facts of the host, from a faked /proc and /sys."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.box.facts import Host, RayProcess
from rig.box.host import read_host
from rig.box.system import System, numbers_of_list, size_and_free
from tests.box.fake_nvml import GIB
from tests.box.fake_system import FakeBox, FakeHost, fake_box


def host_of(tmp_path: Path, **fields: object) -> Host:
    return read_host(fake_box(tmp_path, host=FakeHost(**fields)).system)  # type: ignore[arg-type]


def test_a_plain_host(tmp_path: Path) -> None:
    host = host_of(tmp_path)
    assert host.kernel == "6.8.0-45-generic"
    assert host.driver_version == "595.58.03"
    assert (host.wsl, host.virtual_machine, host.container) == (False, False, "")
    assert host.cpus == 32
    assert (host.memory_bytes, host.memory_available_bytes) == (128 * GIB, 120 * GIB)
    assert (host.cgroup_limit_bytes, host.cgroup_used_bytes) == (-1, None)
    assert host.memlock_bytes == -1
    assert (host.shm_bytes, host.shm_free_bytes) == (64 * GIB, 64 * GIB)
    assert host.tmp_free_bytes == 400 * GIB
    assert host.ray == ()
    assert host.p2p_cache_files == ()
    assert host.iommu is None  # another reader's


def test_nothing_to_read_is_nothing_known(tmp_path: Path) -> None:
    host = read_host(System(root=tmp_path / "nothing", environment={}))
    assert host == Host()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\nGCC version: 12\n",
            "550.54.15",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95  Release Build\n",
            "580.95",
        ),
        ("GCC version:  gcc version 12.2.0\n", None),
        ("", None),
    ],
)
def test_the_driver_when_its_module_does_not_say(
    tmp_path: Path, text: str, version: str | None
) -> None:
    files = {"/proc/driver/nvidia/version": text}
    assert host_of(tmp_path, driver=None, files=files).driver_version == version


def test_wsl(tmp_path: Path) -> None:
    assert host_of(tmp_path, kernel="6.6.87.2-microsoft-standard-WSL2").wsl is True


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"cpu_flags": "fpu hypervisor"}, True),
        ({"cpu_flags": "fpu", "vendor": "QEMU"}, True),
        ({"cpu_flags": "fpu", "vendor": "innotek GmbH"}, True),
        ({"cpu_flags": "fpu", "vendor": "Micro-Star International"}, False),
        ({"cpu_flags": "fpu", "vendor": "ASUS Hypervisor-less Board"}, False),
        ({"files": {"/proc/cpuinfo": "processor: 0\n"}}, None),  # not x86: no such flag
        ({"files": {"/proc/cpuinfo": ""}, "vendor": "VMware, Inc."}, True),
    ],
)
def test_virtual_machines(tmp_path: Path, fields: dict[str, object], answer: bool | None) -> None:
    assert host_of(tmp_path, **fields).virtual_machine is answer


@pytest.mark.parametrize(
    ("files", "group", "name"),
    [
        ({"/.dockerenv": ""}, "0::/\n", "docker"),
        ({"/run/.containerenv": ""}, "0::/\n", "podman"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "0::/\n", "systemd-nspawn"),
        ({"/proc/1/environ": "PATH=/bin\0container=lxc\0"}, "0::/\n", "lxc"),
        ({"/proc/1/environ": "mycontainer=no\0container=\0"}, "0::/user.slice\n", ""),
        ({}, "0::/\n", None),  # a container's own namespace, or a host without systemd
        ({}, "4:memory:/docker/0123abc\n", "docker"),
        ({}, "0::/kubepods.slice/kubepods-pod1.slice/docker-2.scope\n", "kubernetes"),
        ({}, "0::/user.slice/session-1.scope\n", ""),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], group: str, name: str | None) -> None:
    assert host_of(tmp_path, files=files, cgroup=group).container == name


def test_kubernetes_by_its_variable(tmp_path: Path) -> None:
    box = fake_box(tmp_path, environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert read_host(box.system).container == "kubernetes"


@pytest.mark.parametrize(
    ("soft", "size"), [("unlimited", -1), ("8388608", 8388608), ("0", 0), ("soon", None)]
)
def test_memlock(tmp_path: Path, soft: str, size: int | None) -> None:
    assert host_of(tmp_path, memlock=soft).memlock_bytes == size


def test_small_shared_memory_and_another_tmp(tmp_path: Path) -> None:
    host = host_of(tmp_path, shm=(64 << 20, 60 << 20))
    assert (host.shm_bytes, host.shm_free_bytes) == (64 << 20, 60 << 20)
    asked: list[Path] = []

    def look(folder: Path) -> tuple[int, int] | None:
        asked.append(folder)
        return None

    host = read_host(System(tmp_path, {"TMPDIR": "/scratch"}, look))
    assert asked == [tmp_path / "dev/shm", tmp_path / "scratch"]
    assert (host.shm_bytes, host.tmp_free_bytes) == (None, None)


def test_real_file_systems(tmp_path: Path) -> None:
    told = size_and_free(tmp_path)
    assert told is not None
    assert told[0] >= told[1] > 0
    assert size_and_free(tmp_path / "nothing") is None


def test_numa_nodes(tmp_path: Path) -> None:
    host = host_of(tmp_path, numa_nodes=("0-3,8", "4-7"))
    found = [(n.node, n.cpus, n.memory_bytes) for n in host.numa_nodes or ()]
    assert found == [(0, (0, 1, 2, 3, 8), 64 * GIB), (1, (4, 5, 6, 7), 64 * GIB)]


def test_ten_numa_nodes_are_in_number_order(tmp_path: Path) -> None:
    host = host_of(tmp_path, numa_nodes=[f"{i}" for i in range(12)])
    assert [node.node for node in host.numa_nodes or ()] == list(range(12))


def test_ray_and_whose_it_is(tmp_path: Path) -> None:
    ray = {30: ("raylet", 1000), 4: ("gcs_server", 1234), 50: ("python", 0)}
    assert host_of(tmp_path, ray=ray).ray == (
        RayProcess(pid=4, user="uid 1234", program="gcs_server"),
        RayProcess(pid=30, user="user", program="raylet"),
    )


def cache_files(box: FakeBox, tmp_path: Path) -> list[str]:
    found = read_host(box.system).p2p_cache_files
    assert found is not None
    return [str(Path(path).relative_to(tmp_path)) for path in found]


def test_p2p_cache_files_where_vllm_puts_them(tmp_path: Path) -> None:
    name = "gpu_p2p_access_cache_for_0,1,2,3.json"
    box = fake_box(tmp_path)
    for folder in ("home/user/.cache/vllm", "xdg/vllm", "own", "home/user/mine"):
        box.write(f"{folder}/{name}", "{}")
        box.write(f"{folder}/torch_compile_cache/other.json", "{}")
    assert cache_files(box, tmp_path) == [f"home/user/.cache/vllm/{name}"]
    xdg = fake_box(tmp_path, environment={"XDG_CACHE_HOME": str(tmp_path / "xdg")})
    assert cache_files(xdg, tmp_path) == [f"xdg/vllm/{name}"]
    both = {"XDG_CACHE_HOME": "/nowhere", "VLLM_CACHE_ROOT": str(tmp_path / "own")}
    assert cache_files(fake_box(tmp_path, environment=both), tmp_path) == [f"own/{name}"]
    home = fake_box(tmp_path, environment={"VLLM_CACHE_ROOT": "~/mine"})
    assert cache_files(home, tmp_path) == [f"home/user/mine/{name}"]


@given(st.text(max_size=40))
def test_kernel_lists_of_any_text(text: str) -> None:
    assert all(number >= 0 or "-" in text for number in numbers_of_list(text))


def test_kernel_lists() -> None:
    assert numbers_of_list("0-2,5,x,7-6,8-") == (0, 1, 2, 5, 8)
    assert numbers_of_list("0-99999999999") == ()


@settings(deadline=None, max_examples=40)  # files are made
@given(st.binary(max_size=200))
def test_files_of_any_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        box = fake_box(Path(folder))
        for path in (
            *("/proc/cpuinfo", "/proc/meminfo", "/proc/self/limits", "/proc/self/status"),
            *("/proc/1/environ", "/proc/77/comm", "/etc/passwd", "/proc/driver/nvidia/version"),
            *("/sys/devices/system/node/node0/cpulist", "/sys/devices/system/node/node0/meminfo"),
        ):
            box.write(path, data)
        read_host(box.system)
