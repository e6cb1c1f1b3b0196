"""A container of an image as docker/compose.yaml makes one, by crun: no engine is needed.

No capabilities, no new privileges, a user that the image does not know, a root file system that
can be read-only, /tmp and /dev/shm of its own. The network is this machine's. Needs root.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .buildah import Buildah

ENTRY = "/opt/vllm-rig/entrypoint.sh"
# No part of it is needed here, and crun refuses a machine with both kinds of control groups.
_WITHOUT_CGROUPS = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
_PRIVATE = ["nosuid", "nodev", "noexec"]


@dataclass(frozen=True)
class Settings:
    """How a container runs.

    Args:
        environment: beside the image's own.
        mounts: place inside -> (file or folder here, "ro" or "rw").
        temporary: whether /tmp is a tmpfs.
    """

    user: int = 1234
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    read_only: bool = True
    temporary: bool = True


def why_not() -> str:
    """Why no container runs here; "" if one does."""
    lacking = [name for name in ("crun", "unshare") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def bundle(root: Path, config: Mapping[str, Any], settings: Settings, words: Sequence[str]) -> Any:
    """A container in the form that OCI runtimes read.

    Args:
        config: the image's, in docker's form.
    """
    environment = dict(line.split("=", 1) for line in config["Env"]) | dict(settings.environment)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    mounts = [
        _mount("/proc", "proc", []),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
        _mount("/dev/shm", "tmpfs", [*_PRIVATE, "mode=1777", "size=8g"]),
        _mount("/dev/mqueue", "mqueue", _PRIVATE),
        _mount("/sys", "none", ["rbind", "ro", *_PRIVATE], "/sys"),
    ]
    if settings.temporary:
        mounts.append(_mount("/tmp", "tmpfs", ["nosuid", "nodev", "mode=1777", "size=8g"]))
    mounts += [
        _mount(place, "bind", ["rbind", mode], str(source))
        for place, (source, mode) in settings.mounts.items()
    ]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": settings.read_only},
        "mounts": mounts,
        "process": {
            "user": {"uid": settings.user, "gid": settings.user},
            "args": [*config["Entrypoint"], *words],
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": config["WorkingDir"],
            "capabilities": {},
            "noNewPrivileges": True,
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": files, "hard": files}],
        },
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


def _mount(place: str, kind: str, options: Sequence[str], source: str = "") -> dict[str, Any]:
    return {
        "destination": place,
        "type": kind,
        "source": source or kind,
        "options": list(options),
    }


def crun(*words: str) -> list[str]:
    """The command of crun."""
    head = ["unshare", "--mount", "sh", "-c", _WITHOUT_CGROUPS, "sh"]
    return [*head, "crun", "--cgroup-manager=disabled", *words]


@contextmanager
def container(
    buildah: Buildah, tag: str, settings: Settings, words: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """A container that is ready to be run: its name, and the command that runs it."""
    described = json.loads(buildah.run("inspect", "--type", "image", tag).stdout)
    name = buildah.run("from", "--pull=false", tag).stdout.strip()
    try:
        root = Path(buildah.run("mount", name).stdout.strip())
        with tempfile.TemporaryDirectory() as folder:
            made = bundle(root, described["Docker"]["config"], settings, words)
            (Path(folder) / "config.json").write_text(json.dumps(made))
            yield name, crun("run", "--bundle", folder, name)
    finally:
        subprocess.run(crun("delete", "--force", name), capture_output=True, check=False)
        buildah.run("rm", name)


def run(
    buildah: Buildah, tag: str, settings: Settings, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a container to its end."""
    with container(buildah, tag, settings, words) as (_, command):
        return buildah.command(command, check=False, timeout=120)
