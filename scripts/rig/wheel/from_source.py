"""Building from source: for a series that changes compiled code, for one GPU architecture.

The compiler works on a clone of the applied tree, so neither an edited work tree nor the build's
droppings get in each other's way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from rig.console import console
from rig.download import sha256_of
from rig.errors import RigError, first_line_of_os_error
from rig.git import Git
from rig.layout import Layout
from rig.pins import Flavour
from rig.series.applied import AppliedTree
from rig.wheel.archive import Archive
from rig.wheel.build import BuiltWheel, write_plan
from rig.wheel.compilers import Device, find_problems, look_around
from rig.wheel.inspect import inspect_wheel
from rig.wheel.naming import parse_wheel_name, rig_version
from rig.wheel.output import replacing
from rig.wheel.plan import plan_finish
from rig.wheel.release import read_base
from rig.wheel.scope import sort_changes
from rig.wheel.tree import read_sources

DEFAULT_ARCHITECTURES = "8.6"  # RTX 3090; each further one costs about an hour of compiling
_GIB = 1 << 30
_GIB_PER_JOB = 4  # what nvcc takes for vLLM's larger kernels

# Each of these would make setup.py take something else than the tree, or call it otherwise.
_DROPPED_VARIABLES = ("VLLM_", "SETUPTOOLS_SCM_", "PYTHONPATH", "PYTHONHOME", "PIP_", "GIT_")


@dataclass(frozen=True)
class SourceBuild:
    """One compilation: a command and its whole environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def jobs_for(processors: int, memory_bytes: int) -> int:
    """How many compilers may run at once: one for each 4 GiB, no more than processors."""
    return max(1, min(processors, memory_bytes // (_GIB_PER_JOB * _GIB)))


def plan_source_build(
    python: Path,
    source: Path,
    wheels: Path,
    version: str,
    device: Device,
    jobs: int,
    inherited: Mapping[str, str],
    architectures: str = DEFAULT_ARCHITECTURES,
) -> SourceBuild:
    """The command and environment that compile a tree; pure.

    Args:
        wheels: the folder that pip writes the wheel into.
        version: ours; setup.py takes it from VLLM_VERSION_OVERRIDE as it is, without a suffix.
        jobs: compilers at once.
        inherited: the caller's environment.
        architectures: TORCH_CUDA_ARCH_LIST, used for CUDA only.
    """
    environment = {k: v for k, v in inherited.items() if not k.startswith(_DROPPED_VARIABLES)}
    environment |= {
        "VLLM_TARGET_DEVICE": device,
        "VLLM_VERSION_OVERRIDE": version,
        "MAX_JOBS": str(jobs),
        "SOURCE_DATE_EPOCH": "315532800",
    }
    if device == "cuda":
        environment |= {"TORCH_CUDA_ARCH_LIST": architectures, "NVCC_THREADS": "1"}
    command = [str(python), "-m", "pip", "wheel", "-v", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    return SourceBuild(tuple(command), environment)


def build_from_source(
    layout: Layout,
    applied: AppliedTree,
    flavour: Flavour,
    revision: int,
    python: Path,
    *,
    architectures: str = DEFAULT_ARCHITECTURES,
    out_folder: Path | None = None,
    device: Device | None = None,
) -> BuiltWheel:
    """Compile the applied tree and give the wheel the same marks as a repacked one.

    Args:
        python: an interpreter with the pinned torch and vLLM's build requirements.
        device: VLLM_TARGET_DEVICE when it is not the flavour's own: `empty` compiles nothing.

    Raises:
        RigError: something is missing that a build needs (names all of it), the compilation
            failed (names its log), or the wheel is not as it must be.
    """
    started = time.monotonic()
    pin, device = applied.pin, device or flavour.value
    scope = sort_changes(applied.changed, compiled=True)
    version = rig_version(pin.version, revision, flavour)
    sources = read_sources(applied, scope.packaged)
    git = Git(applied.folder)
    project = tomllib.loads(git.run("show", f"{applied.final_tree}:pyproject.toml").text)
    requires = project["build-system"]["requires"]
    machine = look_around(python, requires)
    problems = find_problems(machine, pin, device, requires)
    if problems:
        raise RigError(
            "this machine cannot build vLLM from source yet",
            where=python,
            detail="\n".join(problems),
            next_step="provide what is listed above; a series that changes only Python files "
            "needs none of it: `make build`",
        )
    if "cargo" not in machine.programs:
        console.print("cargo is not on PATH: the wheel will lack vLLM's optional Rust front end")
    work = layout.build / f"source-{pin.version}"
    try:
        layout.build.mkdir(parents=True, exist_ok=True)
        with FileLock(layout.build / f".source-{pin.version}.lock"):
            shutil.rmtree(work, ignore_errors=True)
            wheels = work / "wheels"
            wheels.mkdir(parents=True)
            _export(git, applied, work / "vllm")
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            jobs = jobs_for(len(os.sched_getaffinity(0)), memory)
            build = plan_source_build(
                python, work / "vllm", wheels, version, device, jobs, os.environ, architectures
            )
            compiled = _compile(build, wheels, layout.build / f"source-{pin.version}.log")
            name = parse_wheel_name(compiled.name)
            with Archive(compiled) as archive:
                base = read_base(archive, name, sources.final)
                plan = plan_finish(
                    base,
                    sources,
                    scope,
                    applied,
                    flavour,
                    version,
                    asks_for_torch=device != "empty",
                )
                target = (out_folder or layout.dist) / plan.name.file_name
                with replacing(target) as part:
                    write_plan(archive, plan, part)
                    inspect_wheel(part, name=target.name, full=True)
                    digest = sha256_of(part)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise RigError(
            f"cannot build from source: {first_line_of_os_error(error)}",
            where=work,
            next_step="free some space there, or make it writable, and run it again",
        ) from error
    seconds = time.monotonic() - started
    patched = tuple(sorted(f.path for f in scope.packaged))
    return BuiltWheel(target, version, digest, seconds, patched, scope.outside)


def _export(git: Git, applied: AppliedTree, target: Path) -> None:
    """Clone the applied commit: setup.py packs the data files that a repository tracks."""
    commit = git.line("rev-parse", "HEAD")
    if git.tree_id(commit) != applied.final_tree:
        raise RigError(
            "the applied tree has moved since it was proven",
            where=applied.folder,
            next_step="run `make apply` again; `make refresh` keeps commits you added",
        )
    git.run("clone", "--quiet", "--shared", "--no-checkout", git.folder.resolve(), target)
    Git(target).run("checkout", "--quiet", "--detach", commit)


def _compile(build: SourceBuild, wheels: Path, log: Path) -> Path:
    console.print(f"compiling, which takes long; its output goes to {log}")
    with log.open("wb") as output:
        done = subprocess.run(
            build.command,
            env=build.environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    found = sorted(wheels.glob("*.whl"))
    if done.returncode != 0 or len(found) != 1:
        raise RigError(
            f"the compilation failed with status {done.returncode}",
            where=log,
            detail=log.read_text("utf-8", "replace")[-3000:],
            next_step="the log says more; a compiler that was killed needs more memory: MAX_JOBS "
            "is chosen by this machine's memory",
        )
    return found[0]
