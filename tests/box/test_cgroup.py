"""Memory limits of control groups: both versions, parents, containers, odd text."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.box.cgroup import MemoryLimit, memory_limit
from rig.box.system import System
from tests.box.fake_nvml import GIB
from tests.box.fake_system import FakeHost, fake_box

V1_MOUNT = "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V1_NONE = "9223372036854771712\n"


def limit_of(tmp_path: Path, **host: object) -> MemoryLimit | None:
    return memory_limit(fake_box(tmp_path, host=FakeHost(**host)).system)  # type: ignore[arg-type]


def test_no_limit_anywhere(tmp_path: Path) -> None:
    assert limit_of(tmp_path) == MemoryLimit(-1, None)


def test_v2_limit_and_what_is_used_without_droppable_pages(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/a/b/memory.max": f"{32 * GIB}\n",
        "/sys/fs/cgroup/a/b/memory.current": f"{20 * GIB}\n",
        "/sys/fs/cgroup/a/b/memory.stat": f"anon 5\ninactive_file {8 * GIB}\n",
    }
    assert limit_of(tmp_path, cgroup="0::/a/b\n", cgroup_files=files) == MemoryLimit(
        32 * GIB, 12 * GIB
    )


def test_v2_a_parent_with_less_room_counts(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/a/b/c/memory.max": f"{32 * GIB}\n",
        "/sys/fs/cgroup/a/b/c/memory.current": f"{1 * GIB}\n",
        "/sys/fs/cgroup/a/b/memory.max": "max\n",
        "/sys/fs/cgroup/a/memory.max": f"{48 * GIB}\n",
        "/sys/fs/cgroup/a/memory.current": f"{40 * GIB}\n",
    }
    told = limit_of(tmp_path, cgroup="0::/a/b/c\n", cgroup_files=files)
    assert told == MemoryLimit(48 * GIB, 40 * GIB)


def test_v2_in_a_container_with_its_own_namespace(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/memory.max": f"{16 * GIB}\n",
        "/sys/fs/cgroup/memory.current": f"{GIB}\n",
        "/sys/fs/other/memory.max": "1\n",  # no group, only a path that ".." might lead to
    }
    told = limit_of(tmp_path, cgroup="0::/\n", cgroup_files=files)
    assert told == MemoryLimit(16 * GIB, GIB)
    told = limit_of(tmp_path, cgroup="0::/../other\n", cgroup_files=files)
    assert told == MemoryLimit(16 * GIB, GIB)


def test_v1_with_its_parents(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": V1_NONE,
        "/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": f"{GIB}\n",
        "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{24 * GIB}\n",
        "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": f"{6 * GIB}\n",
        "/sys/fs/cgroup/memory/a/memory.stat": f"total_inactive_file {2 * GIB}\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE,
    }
    group = "9:name=systemd:/\n4:memory:/a/b\n1:cpu:/x\n"
    told = limit_of(tmp_path, cgroup=group, cgroup_files=files, cgroup_mount=V1_MOUNT)
    assert told == MemoryLimit(24 * GIB, 4 * GIB)


def test_v1_a_limit_above_what_the_mount_shows(tmp_path: Path) -> None:
    # A container without a cgroup namespace: the mount's root is the container's own group.
    mount = "31 20 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    files = {
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE,
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        "/sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {8 * GIB}\n",
    }
    told = limit_of(tmp_path, cgroup="4:memory:/docker/abc\n", cgroup_files=files,
                    cgroup_mount=mount)  # fmt: skip
    assert told == MemoryLimit(8 * GIB, GIB)


def test_v1_without_a_limit(tmp_path: Path) -> None:
    files = {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": V1_NONE}
    told = limit_of(tmp_path, cgroup="4:memory:/a\n", cgroup_files=files, cgroup_mount=V1_MOUNT)
    assert told == MemoryLimit(-1, None)


def test_mixed_versions_the_one_with_the_memory_controller_counts(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{8 * GIB}\n",
        "/sys/fs/cgroup/unified/a/cgroup.procs": "",
    }
    mounts = V1_MOUNT + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    told = limit_of(tmp_path, cgroup="4:memory:/a\n0::/a\n", cgroup_files=files,
                    cgroup_mount=mounts)  # fmt: skip
    assert told == MemoryLimit(8 * GIB, None)


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    files = {"/odd place/a/memory.max": f"{GIB}\n"}
    mount = "30 20 0:26 / /odd\\040place rw - cgroup2 cgroup2 rw\n"
    told = limit_of(tmp_path, cgroup="0::/a\n", cgroup_files=files, cgroup_mount=mount)
    assert told == MemoryLimit(GIB, None)


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "x:y", ":::::"])
def test_unreadable_groups_are_unknown(tmp_path: Path, text: str) -> None:
    assert limit_of(tmp_path, cgroup=text, cgroup_mount="") is None
    assert memory_limit(System(root=tmp_path / "nothing")) is None


@settings(deadline=None, max_examples=40)  # files are made
@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=20))
def test_any_text_is_read_without_an_error(group: str, mounts: str, limit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = FakeHost(
            cgroup=group + "\n0::/user.slice",
            cgroup_mount=mounts + "\n30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            cgroup_files={"/sys/fs/cgroup/user.slice/memory.max": limit},
        )
        told = memory_limit(fake_box(Path(folder), host=host).system)
        assert told is None or told.limit >= -1
