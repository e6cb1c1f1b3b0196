"""Building from source: the plan, the refusals, and the whole way with a backend that packs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rig.wheel.from_source as module
from rig.errors import RigError
from rig.pins import Flavour
from rig.wheel.compilers import Device, Interpreter, Machine, find_problems, look_around
from rig.wheel.from_source import build_from_source, jobs_for, plan_source_build
from rig.wheel.inspect import inspect_wheel
from rig.wheel.metadata import header_values

from .wheel_fabric import LIBRARY, TORCH, Fabric

GIB = 1 << 30
REQUIRES = ["cmake>=3.26", "ninja", "setuptools>=77,<81", f"torch=={TORCH}", "wheel"]

# A build backend inside the tree: pip runs it as it would run setuptools, but it only packs.
BACKEND = """
import base64, hashlib, os, zipfile
from pathlib import Path

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    print("device", os.environ["VLLM_TARGET_DEVICE"], "jobs", os.environ["MAX_JOBS"])
    if os.path.exists("fail"):
        raise SystemExit("nvcc: error: a made-up compiler error")
    version = os.environ["VLLM_VERSION_OVERRIDE"]
    info = f"vllm-{version}.dist-info"
    files = {str(p): p.read_bytes() for p in sorted(Path("vllm").rglob("*")) if p.is_file()}
    written = f"__version__ = version = {version!r}\\n__commit_id__ = commit_id = None\\n"
    files["vllm/_version.py"] = written.encode()
    files["vllm/_C.abi3.so"] = b"compiled: " + Path("csrc/kernel.cu").read_bytes()
    asks = {"cuda": ["torch==2.13.0"], "cpu": ["torch==2.13.0+cpu", "torchaudio", "torchcodec"]}
    lines = ["Metadata-Version: 2.1", "Name: vllm", f"Version: {version}"]
    lines += [f"Requires-Dist: {r}" for r in asks.get(os.environ["VLLM_TARGET_DEVICE"], [])]
    files[f"{info}/METADATA"] = "\\n".join([*lines, "", ""]).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\\nTag: py3-none-any\\n\\n"
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        quoted = '"' + name.replace('"', '""') + '"'
        rows.append(f"{quoted},sha256={digest},{len(data)}\\n")
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\\n").encode()
    name = f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return name
"""
PYPROJECT = """[build-system]
requires = []
build-backend = "packer"
backend-path = ["."]
"""
SERIES: dict[str, bytes | None] = {
    "pyproject.toml": PYPROJECT.encode(),
    "packer.py": BACKEND.encode(),
    "csrc/kernel.cu": b"// patched kernel\n",
    "vllm/platforms/cpu.py": b"x = 1\n",
    "vllm/old.py": None,
}


def interpreter(**changes: object) -> Interpreter:
    values: dict[str, object] = {
        "python": "3.12.1",
        "cuda": "13.0",
        "distributions": {
            "cmake": "4.1",
            "ninja": "1.13",
            "setuptools": "80.9.0",
            "torch": f"{TORCH}+cu130",
            "wheel": "0.46",
            "pip": "25.0",
        },
    }
    return Interpreter.model_validate(values | changes)


def without(name: str, version: str | None = None) -> Interpreter:
    return interpreter(distributions={**interpreter().distributions, name: version})


def machine(found: Interpreter, nvcc: str | None = "13.0", programs: str = "c++") -> Machine:
    return Machine(found, nvcc, frozenset(programs.split()))


@pytest.mark.parametrize(
    ("processors", "gib", "jobs"), [(32, 64, 16), (2, 64, 2), (16, 3, 1), (16, 9, 2), (1, 1, 1)]
)
def test_jobs_fit_the_memory(processors: int, gib: int, jobs: int) -> None:
    assert jobs_for(processors, gib * GIB) == jobs


def test_the_command_and_the_environment_of_a_cuda_build() -> None:
    inherited = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "VLLM_USE_PRECOMPILED": "1",
        "VLLM_VERSION_OVERRIDE": "9",
        "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM": "9",
        "PYTHONPATH": "/elsewhere",
        "PIP_TARGET": "/elsewhere",
    }
    python, source, wheels = Path("/e nv/bin/python"), Path("/a b/vllm"), Path("/a b/wheels")
    build = plan_source_build(python, source, wheels, "1.2.3+rig.1", "cuda", 3, inherited)
    assert build.command == (
        *("/e nv/bin/python", "-m", "pip", "wheel", "-v", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", "--wheel-dir", "/a b/wheels", "/a b/vllm"),
    )
    assert build.environment == {
        "PATH": "/bin",
        "HOME": "/home/x",
        "VLLM_TARGET_DEVICE": "cuda",
        "VLLM_VERSION_OVERRIDE": "1.2.3+rig.1",
        "TORCH_CUDA_ARCH_LIST": "8.6",
        "MAX_JOBS": "3",
        "NVCC_THREADS": "1",
        "SOURCE_DATE_EPOCH": "315532800",
    }
    other = plan_source_build(python, source, wheels, "1", "cuda", 1, {}, "8.6;8.9")
    assert other.environment["TORCH_CUDA_ARCH_LIST"] == "8.6;8.9"
    cpu = plan_source_build(python, source, wheels, "1", "cpu", 1, {})
    assert "TORCH_CUDA_ARCH_LIST" not in cpu.environment


def test_a_machine_that_has_everything(fabric: Fabric) -> None:
    pin = fabric.pin()
    assert find_problems(machine(interpreter()), pin, "cuda", REQUIRES) == []
    system_tools = machine(without("cmake"), programs="c++ cmake")
    assert find_problems(system_tools, pin, "cuda", REQUIRES) == []
    bare = machine(interpreter(cuda=None), nvcc=None, programs="")
    assert find_problems(bare, pin, "empty", REQUIRES) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (machine(interpreter(), nvcc=None), "nvcc: no CUDA compiler"),
        (machine(interpreter(), nvcc="12.9"), "nvcc 12.9: torch was built for CUDA 13.0"),
        (machine(interpreter(), programs=""), "c++: no C++ compiler"),
        (machine(interpreter(cuda=None)), "it was built without CUDA"),
        (machine(interpreter(python="3.9.9")), "Python 3.9.9: vLLM 1.2.3 needs >=3.10"),
        (machine(without("torch")), f"torch: not installed, the pin needs {TORCH}"),
        (machine(without("torch", "2.14.0")), f"torch 2.14.0: the pin needs {TORCH}"),
        (machine(without("ninja")), "ninja: not installed"),
        (machine(without("setuptools", "82.0")), "setuptools 82.0: the build needs"),
        (machine(without("wheel")), "wheel: not installed"),
        (machine(without("pip")), "pip: not installed"),
    ],
)
def test_what_is_missing_is_named(fabric: Fabric, found: Machine, says: str) -> None:
    (problem,) = find_problems(found, fabric.pin(), "cuda", REQUIRES)
    assert says in problem


def test_everything_that_is_missing_is_named_at_once(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    nothing = look_around(Path(sys.executable), ["no-such-distribution-here"])
    assert nothing.nvcc is None
    problems = find_problems(nothing, fabric.pin(), "cuda", ["no-such-distribution-here"])
    assert {p.split(":")[0] for p in problems} >= {"torch", "nvcc", "c++"}
    assert any(p.startswith("no-such-distribution-here: not installed") for p in problems)


def test_a_look_at_a_real_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.1'\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    seen = look_around(Path(sys.executable), ["pip>=1", "packaging"])
    assert seen.nvcc == "12.9"
    assert seen.interpreter.python == ".".join(map(str, sys.version_info[:3]))
    assert seen.interpreter.distributions["packaging"] is not None
    with pytest.raises(RigError, match="cannot be used"):
        look_around(tmp_path / "no python", [])


def test_nothing_is_compiled_on_a_machine_that_lacks_something(fabric: Fabric) -> None:
    applied = fabric.series({"csrc/kernel.cu": b"// patched\n"})
    with pytest.raises(RigError, match="cannot build vLLM from source yet") as caught:
        build_from_source(fabric.layout, applied, Flavour.CUDA, 1, Path(sys.executable))
    assert "torch" in str(caught.value)
    assert not list(fabric.layout.build.glob("source*"))


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is taken to have a compiler; everything after that check is real."""
    monkeypatch.setattr(module, "look_around", lambda *_: machine(interpreter()))


@pytest.mark.usefixtures("complete")
def test_the_whole_way_through_pip(fabric: Fabric) -> None:
    applied = fabric.series(SERIES)
    fabric.put("vllm/platforms/cpu.py", b"edited, not committed\n")
    built = build_from_source(fabric.layout, applied, Flavour.CUDA, 4, Path(sys.executable))
    assert built.path == fabric.layout.dist / "vllm-1.2.3+rig.4-py3-none-any.whl"
    assert set(built.patched) == {"vllm/platforms/cpu.py", "vllm/old.py"}
    report = inspect_wheel(built.path, full=True)
    assert report.provenance.tree == applied.final_tree
    assert set(report.provenance.files) == {"vllm/platforms/cpu.py", "vllm/_version.py"}
    with zipfile.ZipFile(built.path) as wheel:
        assert wheel.read("vllm/_C.abi3.so") == b"compiled: // patched kernel\n" != LIBRARY
        assert wheel.read("vllm/platforms/cpu.py") == b"x = 1\n"
        assert b"commit_id = 'g0123abcd9'" in wheel.read("vllm/_version.py")
    assert "device cuda" in (fabric.layout.build / "source-1.2.3.log").read_text()
    assert not (fabric.layout.build / "source-1.2.3").exists()
    target = fabric.root / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(target), str(built.path)], check=True)
    assert (target / "vllm/rig_provenance.json").is_file()


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize(("device", "asks"), [(None, ["torch==2.13.0"]), ("empty", [])])
def test_a_cpu_wheel_from_source_can_be_installed(
    fabric: Fabric, device: Device | None, asks: list[str]
) -> None:
    fabric.flavour = Flavour.CPU
    applied = fabric.series(SERIES)
    built = build_from_source(
        fabric.layout, applied, Flavour.CPU, 4, Path(sys.executable), device=device
    )
    with zipfile.ZipFile(built.path) as wheel:
        metadata = wheel.read("vllm-1.2.3+rig.4.cpu.dist-info/METADATA")
    assert header_values(metadata, "Requires-Dist") == asks
    assert f"device {device or 'cpu'}" in (fabric.layout.build / "source-1.2.3.log").read_text()


@pytest.mark.usefixtures("complete")
def test_a_compiler_that_fails_is_quoted(fabric: Fabric) -> None:
    applied = fabric.series({**SERIES, "fail": b""})
    with pytest.raises(RigError, match="compilation failed") as caught:
        build_from_source(fabric.layout, applied, Flavour.CUDA, 1, Path(sys.executable))
    assert "a made-up compiler error" in str(caught.value)
    assert caught.value.where == fabric.layout.build / "source-1.2.3.log"
    assert fabric.dist_files() == []


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("if p.is_file()}", "if p.is_file() and p.suffix == '.py'}", r"missing from the wheel"),
        ('files["vllm/_C.abi3.so"]', 'files["vllm/old.py"]', "the series removes"),
        ('_OVERRIDE"]', '_OVERRIDE"] + ".cu130"', "the compiled wheel says"),
        ('files["vllm/_C.abi3.so"]', 'files["vllm/platforms/cpu.py"]', "not the source's bytes"),
    ],
)
def test_a_compiled_wheel_that_is_not_the_trees(
    fabric: Fabric, line: str, instead: str, says: str
) -> None:
    assert line in BACKEND
    backend = BACKEND.replace(line, instead).encode()
    applied = fabric.series({**SERIES, "packer.py": backend})
    with pytest.raises(RigError, match=says):
        build_from_source(fabric.layout, applied, Flavour.CUDA, 1, Path(sys.executable))
    assert fabric.dist_files() == []


@pytest.mark.usefixtures("complete")
def test_a_tree_that_moved_after_its_proof(fabric: Fabric) -> None:
    applied = fabric.series(SERIES)
    fabric.series({"vllm/empty.py": b"#\n"})
    with pytest.raises(RigError, match="has moved since it was proven"):
        build_from_source(fabric.layout, applied, Flavour.CUDA, 1, Path(sys.executable))
