"""What a container looks like from inside, as far as a start depends on it."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FLAVOUR_VARIABLE = "RIG_IMAGE_FLAVOUR"
CACHE = Path("/cache")
# What is written while serving: the volume itself, and what its folders may have been made by.
CACHE_VARIABLES = (
    "HOME",
    "XDG_STATE_HOME",
    "HF_HOME",
    "VLLM_CACHE_ROOT",
    "VLLM_RIG_CACHE",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
)


@dataclass(frozen=True)
class Folder:
    """A folder that a server writes to.

    Args:
        owner: user and group id; None if it is not there.
        mode: its permission bits.
        writable: by this user, now.
        read_only: it lies on a file system that is mounted read-only.
    """

    path: str
    owner: tuple[int, int] | None
    mode: int
    writable: bool
    read_only: bool


@dataclass(frozen=True)
class StartFacts:
    """What was seen at the start of a container.

    Args:
        uid, gid: who runs.
        flavour: of the image, `cuda` or `cpu`.
        cache: the volume, and each folder in it that exists already.
        temporary: /tmp, where Ray's private folder goes.
        driver: libcuda can be loaded, which only the NVIDIA runtime puts into a container.
        card_files: the device files of cards, `/dev/nvidia0` or `/dev/dxg` (WSL2).
        wanted_devices: NVIDIA_VISIBLE_DEVICES, if set.
        host, port: where the server is to listen.
        port_taken: what the system says when it is bound; "" when it is free.
    """

    uid: int
    gid: int
    flavour: str
    cache: tuple[Folder, ...]
    temporary: Folder
    driver: bool
    card_files: tuple[str, ...]
    wanted_devices: str | None
    host: str
    port: int
    port_taken: str


def read_folder(path: Path) -> Folder:
    """Look at one folder; never raises."""
    try:
        status = path.stat()
        read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return Folder(str(path), None, 0, False, False)
    writable = os.access(path, os.W_OK | os.X_OK)
    return Folder(
        str(path), (status.st_uid, status.st_gid), status.st_mode & 0o7777, writable, read_only
    )


def cache_folders(environment: Mapping[str, str], cache: Path = CACHE) -> tuple[Folder, ...]:
    """The cache volume, and its folders that are there already."""
    named = (Path(environment[v]) for v in CACHE_VARIABLES if environment.get(v))
    # Path.is_dir raises below a volume that is closed to this user; os.access says no.
    inside = sorted({path for path in named if os.access(path, os.F_OK) and path.is_dir()})
    return (read_folder(cache), *map(read_folder, inside))


def port_taken(host: str, port: int) -> str:
    """Bind a port for a moment; what the system says against it, "" if nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def has_driver() -> bool:
    """Whether NVIDIA's driver library can be loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def card_files(devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The device files of cards."""
    numbered = [p for p in devices.glob("nvidia*") if p.name.removeprefix("nvidia").isdecimal()]
    return tuple(str(p) for p in sorted([*numbered, *devices.glob("dxg")]))


def read_facts(environment: Mapping[str, str], host: str, port: int) -> StartFacts:
    """Look around in a container."""
    flavour = environment.get(FLAVOUR_VARIABLE, "")
    return StartFacts(
        uid=os.getuid(),
        gid=os.getgid(),
        flavour=flavour,
        cache=cache_folders(environment),
        temporary=read_folder(Path("/tmp")),
        driver=has_driver() if flavour == "cuda" else False,
        card_files=card_files() if flavour == "cuda" else (),
        wanted_devices=environment.get("NVIDIA_VISIBLE_DEVICES"),
        host=host,
        port=port,
        port_taken=port_taken(host, port),
    )
