"""The engine's own virtual environment: `build/engine-<version>-cpu/`.

It holds the built wheel and what the wheel needs, in the versions of
`requirements/engine-<version>.txt`. Packages come from the index that pip is configured for;
pip's own cache saves the download of a second environment. Once it is complete, nothing here
needs a network.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from packaging.utils import parse_wheel_filename

from rig.console import console
from rig.download import sha256_of
from rig.errors import RigError, first_line_of_os_error
from rig.launch.engine_environment import is_shell_word
from rig.layout import CACHE_VARIABLE, Layout
from rig.pins import Pin
from rig.rehearsal import torchvision_shim
from rig.rehearsal.commands import Runner, run_logged
from rig.rehearsal.locks import locked
from rig.rehearsal.phases import Phases
from rig.rehearsal.soundness import Check, what_is_wrong

_SHIM_MODULE = "rig_torchvision_shim"
_STAMP = "rig-stamp.json"


@dataclass(frozen=True)
class EngineEnvironment:
    """A complete environment.

    Args:
        folder: the virtual environment.
        version: the version of vLLM in it.
    """

    folder: Path
    version: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return site_packages(self.folder)


@dataclass(frozen=True)
class Stamp:
    """What an environment was made of; written last.

    Args:
        folder: a virtual environment that was moved no longer works.
        python: version and path of the interpreter it was made with.
        packages: digest of the requirements and of the torch version.
        wheel: digest of the wheel.
        shim: digest of what lets torchvision be imported.
    """

    folder: str
    python: str
    packages: str
    wheel: str
    shim: str


class Work(StrEnum):
    """What must be done to get from one stamp to another."""

    NOTHING = "nothing"
    RENEW_WHEEL = "renew the wheel"
    EVERYTHING = "everything"


def work_to_do(found: Stamp | None, wanted: Stamp) -> Work:
    """Decide what to do; without a stamp nothing that lies there is trusted."""
    if found == wanted:
        return Work.NOTHING
    if found is None:
        return Work.EVERYTHING
    same_base = (found.folder, found.python, found.packages) == (
        wanted.folder,
        wanted.python,
        wanted.packages,
    )
    return Work.RENEW_WHEEL if same_base else Work.EVERYTHING


def environment_folder(layout: Layout, pin: Pin) -> Path:
    """Where a pin's engine environment lies: build/, or the cache if Ray could not run there.

    Ray puts its own path into shell commands without quotes, so that a checkout in a folder with
    a space in its name could not start a cluster.

    Raises:
        RigError: neither path can be a shell word.
    """
    name = f"engine-{pin.version}-cpu"
    inside = layout.build.absolute() / name
    if is_shell_word(inside):
        return inside
    outside = layout.outside.absolute() / name
    if is_shell_word(outside):
        return outside
    raise RigError(
        "Ray cannot run from a folder whose path holds spaces or other special characters",
        where=inside,
        next_step=f"move the checkout, or let {CACHE_VARIABLE} name a folder with a plain path",
    )


def engine_environment(
    layout: Layout,
    pin: Pin,
    wheel: Path,
    *,
    phases: Phases | None = None,
    run: Runner = run_logged,
    check: Check = what_is_wrong,
) -> EngineEnvironment:
    """The environment of a pin with this wheel in it, made or renewed when needed.

    Killed at any moment, it heals on the next call; damaged, it says how and is made anew. Two
    calls at once wait for each other.

    Args:
        wheel: a wheel of ours for the CPU.
        phases: where the seconds are noted.
        run: runs a command and logs it; another one in tests.
        check: says what is wrong with an environment; another one in tests.

    Raises:
        RigError: there are no requirements for this pin, or a command failed; shows the end of
            its log.
    """
    folder = environment_folder(layout, pin)
    phases = phases or Phases()
    requirements = requirement_files(layout, pin)
    version = str(parse_wheel_filename(wheel.name)[1])
    try:
        if folder.parent != layout.build.absolute():
            console.print(f"Ray needs a path without spaces: the environment is {folder}")
        lock_file = folder.with_name(f"{folder.name}.lock")
        with locked(lock_file, "setting up this environment") as lock:
            wanted = wanted_stamp(folder, pin, requirements, wheel)
            work = work_to_do(read_stamp(folder), wanted)
            setup = _Setup(folder, folder.with_name(f"{folder.name}.log"), run, lock, phases)
            unsound = None
            if work is Work.NOTHING:
                unsound = check(folder, version)
            elif work is Work.RENEW_WHEEL:
                setup.carry_out(work, pin, requirements, wheel)
                unsound = check(folder, version)
            if unsound:
                console.print(
                    f"the engine's environment is damaged ({unsound}); it is made anew: {folder}",
                    markup=False,
                )
            if unsound or work is Work.EVERYTHING:
                setup.carry_out(Work.EVERYTHING, pin, requirements, wheel)
                if wrong := check(folder, version):
                    raise RigError(
                        f"the new environment is not what it must be: {wrong}",
                        where=folder,
                        next_step=f"see {setup.log}; remove the folder and run again",
                    )
            if unsound or work is not Work.NOTHING:
                write_stamp(folder, wanted)
    except OSError as error:
        raise RigError(
            f"cannot set up the engine's environment: {first_line_of_os_error(error)}",
            where=folder,
            next_step="it needs several GB; run the same command again, it starts afresh",
        ) from error
    return EngineEnvironment(folder, version)


@dataclass(frozen=True)
class _Setup:
    folder: Path
    log: Path
    run: Runner
    lock: int
    phases: Phases

    def carry_out(self, work: Work, pin: Pin, requirements: Sequence[Path], wheel: Path) -> None:
        (self.folder / _STAMP).unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        if work is Work.RENEW_WHEEL:
            with self.phases.phase(f"installing {wheel.name}"):
                self._pip("--no-index", "--no-deps", "--force-reinstall", str(wheel))
        else:
            asked, versions = requirements
            with self.phases.phase("making the engine's environment"):
                if self.folder.is_symlink() or self.folder.is_file():
                    self.folder.unlink()
                # --clear empties the folder; what a killed run left is gone.
                self._do([sys.executable, "-I", "-m", "venv", "--clear", str(self.folder)])
            with self.phases.phase("installing the engine and what it needs (several GB, minutes)"):
                torch = f"torch=={pin.torch}"
                self._pip("-c", str(versions), "-r", str(asked), torch, str(wheel))
        install_shim(self.folder)

    def _pip(self, *arguments: str) -> None:
        python = str(self.folder / "bin" / "python")
        quiet = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")
        self._do([python, "-I", "-m", "pip", "install", *quiet, *arguments])

    def _do(self, command: list[str]) -> None:
        self.run(command, self.log, self.lock)


def requirement_files(layout: Layout, pin: Pin) -> tuple[Path, Path]:
    """What is asked for beside the wheel, and the exact versions of all.

    Raises:
        RigError: there are none for this pin.
    """
    folder = layout.root / "requirements"
    files = (folder / f"engine-{pin.version}.in", folder / f"engine-{pin.version}.txt")
    for path in files:
        if not path.is_file():
            have = sorted(p.stem.removeprefix("engine-") for p in folder.glob("engine-*.txt"))
            raise RigError(
                f"there is no engine environment for vLLM {pin.version}",
                where=layout.shown(path),
                next_step=f"there is one for: {', '.join(have)}; the top of such a file says "
                "how it is made",
            )
    return files


def wanted_stamp(folder: Path, pin: Pin, requirements: Sequence[Path], wheel: Path) -> Stamp:
    """The stamp of an environment made of these."""
    packages = hashlib.sha256(pin.torch.encode())
    for path in requirements:
        packages.update(path.read_bytes())
    base = getattr(sys, "_base_executable", sys.executable)
    return Stamp(
        folder=str(folder),
        python=f"{platform.python_implementation()} {platform.python_version()} {base}",
        packages=packages.hexdigest(),
        wheel=sha256_of(wheel),
        shim=sha256_of(Path(torchvision_shim.__file__)),
    )


def read_stamp(folder: Path) -> Stamp | None:
    """The stamp of an environment, or None when it is missing or not readable."""
    try:
        return Stamp(**json.loads((folder / _STAMP).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(folder: Path, stamp: Stamp) -> None:
    """Write the stamp whole or not at all."""
    part = folder / f"{_STAMP}.part"
    part.write_text(json.dumps(asdict(stamp), indent=1), "utf-8")
    part.replace(folder / _STAMP)


def site_packages(folder: Path) -> Path:
    """The packages' folder of an environment made with the running interpreter."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / name / "site-packages"


def install_shim(folder: Path) -> None:
    """Copy the shim into an environment and have every process of it start with it."""
    packages = site_packages(folder)
    shutil.copyfile(torchvision_shim.__file__, packages / f"{_SHIM_MODULE}.py")
    (packages / f"{_SHIM_MODULE}.pth").write_text(torchvision_shim.PTH_LINE, "utf-8")
