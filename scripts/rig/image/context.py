"""The folder that an image is built in: what goes into it, and nothing else."""

from __future__ import annotations

import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from rig.errors import RigError, first_line_of_os_error
from rig.image.tools_subset import subset
from rig.layout import Layout
from rig.pins import Flavour, Pin
from rig.rehearsal import torchvision_shim
from rig.rehearsal.environment import requirement_files
from rig.wheel.metadata import header_values

_SHIM = "rig_torchvision_shim"
# Of scripts/: what a server or a look at the box needs.
_SCRIPTS = ("rig", "rigs", "p2p_check")
_LAUNCHERS = ("serve*.sh", "ray-*.sh")


@dataclass(frozen=True)
class Context:
    """What lies in the folder.

    Args:
        copies: place in the folder -> the file that it is a copy of.
        texts: place in the folder -> text that was made for it.
    """

    copies: dict[str, Path]
    texts: dict[str, str]


def dockerfile(flavour: Flavour) -> str:
    """The name of a flavour's Dockerfile in docker/."""
    return "Dockerfile.cpu" if flavour is Flavour.CPU else "Dockerfile"


def plan_context(layout: Layout, pin: Pin, flavour: Flavour, wheel: Path) -> Context:
    """Decide what lies in the folder; reads the checkout and the wheel, writes nothing.

    Raises:
        RigError: there are no requirements for this pin's CPU engine, or the wheel is damaged.
    """
    docker, scripts = layout.root / "docker", layout.root / "scripts"
    copies = {
        "Dockerfile": docker / dockerfile(flavour),
        "ray.txt": docker / "ray.txt",
        "tools/rig": layout.root / "rig",
        "tools/scripts/tools-env.sh": scripts / "tools-env.sh",
        "rig/lay_wheel.py": docker / "lay_wheel.py",
        "rig/entrypoint.sh": docker / "entrypoint.sh",
        "series/patches/series": layout.series,
        "series/patches/revision": layout.revision,
        f"wheel/{wheel.name}": wheel,
    }
    for path in sorted(layout.pins.glob("*.toml")):
        copies[f"series/patches/pins/{path.name}"] = path
    for path in (p for pattern in _LAUNCHERS for p in sorted(scripts.glob(pattern))):
        copies[f"rig/scripts/{path.name}"] = path
    for folder in _SCRIPTS:
        for path in sorted((scripts / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                copies[f"rig/scripts/{path.relative_to(scripts).as_posix()}"] = path
    for name in ("LICENSE", "NOTICE"):
        if (layout.root / name).is_file():
            copies[f"rig/{name}"] = layout.root / name
    tools = (layout.root / "requirements" / "tools.txt").read_text("utf-8")
    texts = {"tools/requirements/tools.txt": subset(tools)}
    if flavour is Flavour.CPU:
        copies["engine.txt"] = requirement_files(layout, pin)[1]
        copies[f"shim/{_SHIM}.py"] = Path(torchvision_shim.__file__)
        texts[f"shim/{_SHIM}.pth"] = torchvision_shim.PTH_LINE
        texts["engine.in"] = "".join(f"{line}\n" for line in needs_of(wheel))
    return Context(copies, texts)


def needs_of(wheel: Path) -> list[str]:
    """What a wheel asks for, outside its extras.

    Raises:
        RigError: it is no wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            metadata = archive.read(name)
    except (OSError, StopIteration, zipfile.BadZipFile) as error:
        raise RigError(
            f"the wheel cannot be read: {error}",
            where=wheel,
            next_step="build it again: `make build FLAVOR=cpu`",
        ) from error
    wanted = map(Requirement, header_values(metadata, "Requires-Dist"))
    return [str(r) for r in wanted if r.marker is None or "extra" not in str(r.marker)]


def write_context(context: Context, folder: Path) -> None:
    """Make the folder anew. Modes and times are the same whatever the umask and the hour.

    Raises:
        RigError: it cannot be written; the one that was there stays.
    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _fill(context, part)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)  # a full disk is not kept full
        raise RigError(
            "cannot make the folder that the image is built in: " + first_line_of_os_error(error),
            where=folder,
            next_step="it takes the wheel's size and 5 MB; free that much, or make it writable",
        ) from error
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _fill(context: Context, part: Path) -> None:
    for place, source in context.copies.items():
        target = part / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    for place, text in context.texts.items():
        target = part / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        target.chmod(0o644)
    for path in (part, *part.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (0, 0))
