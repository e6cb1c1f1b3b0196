"""What a build from source needs of a machine, and what of it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, ValidationError

from rig.errors import RigError, first_line_of_os_error
from rig.pins import Pin

# VLLM_TARGET_DEVICE: `empty` packs the Python files and compiles nothing.
Device = Literal["cuda", "cpu", "empty"]

_PROBE_SECONDS = 60
_ALSO_PROGRAMS = ("cmake", "ninja")  # pip packages that may as well be installed by the system

# torch is looked at without an import, which takes seconds and may fail for lack of a driver.
_PROBE = """
import importlib.metadata, importlib.util, json, os, platform, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

cuda, spec = None, importlib.util.find_spec("torch")
if spec is not None and spec.submodule_search_locations:
    values = {}
    try:
        with open(os.path.join(spec.submodule_search_locations[0], "version.py")) as file:
            exec(file.read(), values)
        cuda = values.get("cuda")
    except OSError:
        pass
print(json.dumps({"python": platform.python_version(), "cuda": cuda,
                  "distributions": {n: version(n) for n in sys.argv[1:]}}))
"""


class Interpreter(BaseModel):
    """What the probe saw.

    Args:
        cuda: the CUDA version that its torch was built for; None for a CPU torch.
        distributions: name -> installed version, None when it is not installed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    python: str
    cuda: str | None
    distributions: dict[str, str | None]


@dataclass(frozen=True)
class Machine:
    """What a build from source could use here.

    Args:
        nvcc: the CUDA compiler's version, `13.0`; None when there is none.
        programs: which of the compilers and build programs are on PATH.
    """

    interpreter: Interpreter
    nvcc: str | None
    programs: frozenset[str]


def look_around(python: Path, requires: Iterable[str]) -> Machine:
    """Look at an interpreter and at the programs on PATH.

    Args:
        requires: the build requirements of vLLM's pyproject.toml.

    Raises:
        RigError: the interpreter cannot be run.
    """
    names = {"pip", "torch", *(canonicalize_name(Requirement(r).name) for r in requires)}
    command = [str(python), "-I", "-c", _PROBE, *sorted(names)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        interpreter = Interpreter.model_validate_json(done.stdout.rstrip().rpartition("\n")[2])
    except (OSError, subprocess.TimeoutExpired, ValidationError) as error:
        said = first_line_of_os_error(error) if isinstance(error, OSError) else str(error)
        raise RigError(
            "the interpreter cannot be used",
            where=python,
            detail=said,
            next_step="name the Python of an environment that has the pinned torch",
        ) from error
    programs = frozenset(p for p in (*_ALSO_PROGRAMS, "c++", "cargo") if shutil.which(p))
    return Machine(interpreter, _nvcc_version(), programs)


def _nvcc_version() -> str | None:
    home = os.environ.get("CUDA_HOME")
    nvcc = str(Path(home, "bin", "nvcc")) if home else shutil.which("nvcc")
    if nvcc is None:
        return None
    try:
        said = subprocess.run(
            [nvcc, "--version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"release (\d+\.\d+)", said)
    return found[1] if found else None


def find_problems(machine: Machine, pin: Pin, device: Device, requires: Iterable[str]) -> list[str]:
    """Everything that is missing for a build, one sentence each; pure."""
    found = machine.interpreter
    problems = []
    if found.python not in SpecifierSet(pin.python):
        problems.append(f"Python {found.python}: vLLM {pin.version} needs {pin.python}")
    problems += _torch_problems(found, pin, device)
    for text in requires:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == "torch" or (requirement.marker and not requirement.marker.evaluate()):
            continue
        version = found.distributions.get(name)
        if version is None and not (name in _ALSO_PROGRAMS and name in machine.programs):
            problems.append(f"{name}: not installed, the build needs `{text}`")
        elif version and not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{name} {version}: the build needs `{text}`")
    if found.distributions.get("pip") is None:
        problems.append("pip: not installed in that interpreter")
    if device != "empty" and "c++" not in machine.programs:
        problems.append("c++: no C++ compiler on PATH")
    if device == "cuda":
        problems += _nvcc_problems(machine)
    return problems


def _torch_problems(found: Interpreter, pin: Pin, device: Device) -> list[str]:
    version = found.distributions.get("torch")
    if version is None:
        return [f"torch: not installed, the pin needs {pin.torch}"]
    if Version(version).public != pin.torch:
        return [f"torch {version}: the pin needs {pin.torch}"]
    if device == "cuda" and found.cuda is None:
        return [f"torch {version}: it was built without CUDA"]
    return []


def _nvcc_problems(machine: Machine) -> list[str]:
    if machine.nvcc is None:
        return ["nvcc: no CUDA compiler on PATH or in CUDA_HOME"]
    cuda = machine.interpreter.cuda
    if cuda and cuda.split(".")[0] != machine.nvcc.split(".")[0]:
        return [f"nvcc {machine.nvcc}: torch was built for CUDA {cuda}"]
    return []
