"""The environment that the engine is installed in: which one, and is it fit to serve."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.launch.processes import run_bounded

PYTHON_VARIABLE = "VLLM_RIG_PYTHON"
RAY_VERSION = "2.60.0"
_DRIVER_PATIENCE_S = 60.0
_CHOOSE = (
    f"say which one: --python /path/to/environment/bin/python, or {PYTHON_VARIABLE}=..., "
    "or activate it"
)

# Reads the packages' metadata: importing vLLM would take seconds. The script's folder (the
# current one) is taken out of the path, lest a vLLM source tree in it is mistaken for the package.
_DESCRIBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.metadata, importlib.util, json
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({
    "executable": sys.executable,
    "python": "%d.%d" % sys.version_info[:2],
    "vllm": version("vllm"),
    "ray": version("ray"),
    "grpc": importlib.util.find_spec("grpc") is not None,
    "package": getattr(importlib.util.find_spec("vllm"), "origin", None),
    "installed": str(importlib.metadata.distribution("vllm").locate_file("vllm/__init__.py"))
        if version("vllm") else None,
}))
"""


@dataclass(frozen=True)
class EngineEnvironment:
    """What is installed beside one interpreter.

    Args:
        python: the interpreter, as it names itself.
        vllm: the installed version of vLLM.
        ray: the installed version of Ray, or None.
        ray_client: whether `ray start` would open a server for remote drivers (it does when
            grpc is installed).
        shadowed_by: the folder of another vLLM that would be imported instead, or None.
        python_version: like "3.12": Ray refuses a cluster of different ones.
    """

    python: Path
    vllm: str
    ray: str | None
    ray_client: bool
    shadowed_by: Path | None
    python_version: str = ""


def choose_python(asked: str | None, inherited: Mapping[str, str] | None = None) -> Path:
    """The interpreter of the engine: as asked, else VLLM_RIG_PYTHON, else the active virtual
    environment, else `python3`.

    Raises:
        RigError: there is none.
    """
    inherited = os.environ if inherited is None else inherited
    named = asked or inherited.get(PYTHON_VARIABLE)
    if not named and inherited.get("VIRTUAL_ENV"):
        named = str(Path(inherited["VIRTUAL_ENV"]) / "bin" / "python")
    found = shutil.which(named or "python3", path=inherited.get("PATH"))
    if found is None:
        raise RigError(
            "the engine's Python was not found", where=named or "python3", next_step=_CHOOSE
        )
    return Path(found).absolute()


def describe(python: Path) -> EngineEnvironment:
    """Ask an interpreter what is installed in its environment (50 ms).

    Raises:
        RigError: it does not run, has no vLLM, or has no `vllm` program beside it.
    """
    try:
        done = subprocess.run(
            [python, "-c", _DESCRIBE], capture_output=True, text=True, timeout=60, check=True
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None)
        raise RigError(
            "this is no working Python", where=python, next_step=_CHOOSE, detail=detail
        ) from error
    # The same interpreter under its own name: a shim on PATH has no programs beside it.
    executable = Path(said["executable"] or python)
    if said["vllm"] is None:
        raise RigError(
            "no vLLM is installed in this environment",
            where=executable,
            next_step=f"build one (make build) and `pip install` it there; or {_CHOOSE}",
        )
    if not (executable.parent / "vllm").is_file():
        raise RigError(
            "vLLM is installed, but its program is not beside the interpreter",
            where=executable.parent / "vllm",
            next_step="install it in a virtual environment of its own",
        )
    shadowed_by = None
    if said["package"] and not Path(said["package"]).samefile(said["installed"]):
        shadowed_by = Path(said["package"]).parent
    return EngineEnvironment(
        executable,
        said["vllm"],
        said["ray"],
        said["grpc"],
        shadowed_by=shadowed_by,
        python_version=said["python"],
    )


def require_ray(environment: EngineEnvironment) -> None:
    """Raise RigError if the private cluster cannot be started from this environment."""
    if environment.ray is None or not (environment.python.parent / "ray").is_file():
        raise RigError(
            "Ray is not installed in the engine's environment",
            where=environment.python,
            next_step=f'{environment.python} -m pip install "ray=={RAY_VERSION}" '
            "(not ray[llm]: it brings another vLLM), or --executor mp",
        )
    if not is_shell_word(environment.python):
        raise RigError(
            "Ray cannot run from an environment whose path holds spaces or other special "
            "characters: it puts the path into shell commands without quotes",
            where=environment.python,
            next_step="make the environment in a folder with a plain path, or --executor mp",
        )


def is_shell_word(path: Path) -> bool:
    """Whether a shell takes an unquoted path as it is."""
    return shlex.quote(str(path)) == str(path)


def require_rig_build(python: Path) -> object:
    """Check that the vLLM that would run is a whole rig build; what `rig.wheel` says of it.

    Raises:
        RigError: it is another build (`pip install -U vllm` replaces ours without a word), is
            half patched, or is hidden behind another one on PYTHONPATH.
    """
    from rig.wheel.installed import check_installation

    installed = check_installation(python)
    environment = describe(python)
    if environment.shadowed_by is not None:
        raise RigError(
            "PYTHONPATH leads to another vLLM than the installed one",
            where=environment.shadowed_by,
            next_step="unset PYTHONPATH",
        )
    return installed


def require_model(model: str) -> None:
    """Raise RigError if the model can only be a folder and is not there.

    vLLM itself says so late, after all else has started, and then in terms of the hub.
    """
    is_path = model.startswith(("/", "./", "../", "~")) or model in (".", "..")
    if is_path and not Path(model).exists():
        expanded = " (only a shell expands ~)" if model.startswith("~") else ""
        raise RigError(
            f"the model's folder is not there{expanded}",
            where=model,
            next_step="give a folder that is there, or a Hugging Face name like owner/model",
        )


def require_gpus(wanted: int) -> None:
    """Check that the driver shows at least this many GPUs to this process.

    Raises:
        RigError: there are fewer, or no driver.
    """
    program = shutil.which("nvidia-smi")
    rehearse = "or rehearse without GPUs: --rehearse"
    if program is None:
        raise RigError(
            "no NVIDIA driver is installed here (nvidia-smi is missing)",
            next_step=f"install the driver, {rehearse}",
        )
    try:
        done = run_bounded([program, "-L"], _DRIVER_PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise RigError(
            "the NVIDIA driver does not answer (nvidia-smi -L hangs)",
            next_step="look for Xid lines in `dmesg`; a reboot may be needed",
        ) from error
    found = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        found = min(found, sum(bool(entry.strip()) for entry in visible.split(",")))
    if found < wanted:
        limit = f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""
        raise RigError(
            f"{wanted} GPUs are needed and {found} are here{limit}",
            next_step=f"use fewer: --tensor-parallel-size {max(found, 1)}, {rehearse}",
            detail=done.stdout + done.stderr,
        )
