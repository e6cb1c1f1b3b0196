"""Which changes a repacked wheel can carry."""

from __future__ import annotations

import pytest

from rig.errors import RigError
from rig.series.applied import ChangedFile
from rig.wheel.scope import sort_changes


def change(path: str, mode: str = "100644") -> ChangedFile:
    return ChangedFile(path, "M", "a" * 40, "b" * 40, mode)


def test_package_files_go_in_and_tests_stay_out() -> None:
    inside = [change("vllm/a.py"), change("vllm/configs/x.json"), change("vllm/t.sh", "100755")]
    outside = ["tests/v1/a.py", "docs/a.md", "tools/x.sh", ".github/x.yml", "benchmarks/b.py"]
    scope = sort_changes([*inside, *map(change, outside)])
    assert scope.packaged == tuple(inside)
    assert scope.outside == tuple(sorted(outside))


@pytest.mark.parametrize(
    "path",
    [
        "csrc/a.py",
        "csrc/attention/x.cu",
        "cmake/utils.cmake",
        "CMakeLists.txt",
        "rust/src/main.rs",
        "rust-toolchain.toml",
        "setup.py",
        "setup.cfg",
        "pyproject.toml",
        "requirements/common.txt",
        "MANIFEST.in",
        "tools/build_rust.py",
        "vllm/ops/x.cu",
        "vllm/ops/x.cuh",
        "vllm/ops/x.hpp",
        "vllm/_C.abi3.so",
        "tests/kernels/x.cpp",
        "vllm/fast.pyx",
        "README.md",
        "new_top_level/x.py",
        "vllm.py",
    ],
)
def test_what_needs_a_compiler_is_refused_by_name(path: str) -> None:
    with pytest.raises(RigError) as caught:
        sort_changes([change("vllm/a.py"), change(path)])
    assert caught.value.where == path
    assert "make build FROM=source" in str(caught.value)
    scope = sort_changes([change("vllm/a.py"), change(path)], compiled=True)
    assert path in {*scope.outside, *(f.path for f in scope.packaged)}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("file", "says"),
    [
        (change("vllm/_version.py"), "the build writes this file itself"),
        (change("vllm/rig_provenance.json"), "the build writes this file itself"),
        (change("vllm/link.py", "120000"), "a symbolic link"),
        (change("vllm/module", "160000"), "a submodule"),
        (change("vllm/a\\b.py"), "its name"),
        (change("vllm/a\nb.py"), "its name"),
        (change("vllm/\udcff.py"), "its name"),
    ],
)
def test_what_no_build_carries(file: ChangedFile, says: str, compiled: bool) -> None:
    with pytest.raises(RigError, match=says) as caught:
        sort_changes([file], compiled=compiled)
    assert "FROM=source" not in str(caught.value)


def test_all_refusals_come_at_once() -> None:
    with pytest.raises(RigError) as caught:
        sort_changes([change("setup.py"), change("csrc/a.cu"), change("vllm/_version.py")])
    for path in ("setup.py", "csrc/a.cu", "vllm/_version.py"):
        assert path in str(caught.value)
