"""Buildah in a storage of its own, and a plain Debian to build on. Needs root, and the network."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

BASE = "localhost/rig-test-base"
# What the images' own base has: Python with venv and pip, and certificates.
_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"


@dataclass(frozen=True)
class Buildah:
    """One storage.

    Args:
        folder: holds it; what is mounted there is gone after `clear`.
        pip_conf: pip's settings of this machine, as one file.
        volumes: `--volume` arguments for the folders and files that those settings name.
    """

    folder: Path
    pip_conf: Path
    volumes: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Has buildah use this storage, and need no runtime."""
        return {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            "TMPDIR": str(self.folder / "tmp"),
        }

    def run(
        self, *words: str, check: bool = True, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        return self.command(["buildah", *words], check=check, timeout=timeout)

    def command(
        self, command: Sequence[str], *, check: bool = True, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done

    def make_base(self) -> str:
        """A plain Debian with Python, made on the spot; its name."""
        if self.run("inspect", "--type", "image", BASE, check=False).returncode != 0:
            root = self.folder / "debian"
            options = ["--variant=minbase", f"--include={_PACKAGES}"]
            self.command(["debootstrap", *options, "bookworm", str(root)])
            container = self.run("from", "scratch").stdout.strip()
            self.run("add", "-q", container, str(root), "/")
            self.run("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
            self.run("commit", "-q", "--rm", container, BASE)
            shutil.rmtree(root)
        return BASE

    def clear(self) -> None:
        """Remove every container and image of this storage, and the storage."""
        self.run("rm", "--all", check=False)
        self.run("rmi", "--all", "--force", check=False)
        subprocess.run(["umount", str(self.folder / "graph" / "overlay")], check=False, **_QUIET)  # type: ignore[call-overload]
        shutil.rmtree(self.folder, ignore_errors=True)


_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def why_not() -> str:
    """Why nothing can be built here; "" if it can."""
    lacking = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    return "" if os.getuid() == 0 else "only root can build without a runtime"


def open_storage(folder: Path) -> Buildah:
    """A storage in a folder, with overlays where the kernel has them."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    overlays = "overlay" in Path("/proc/filesystems").read_text()
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "{"overlay" if overlays else "vfs"}"\n'
        f'graphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    settings = pip_settings()
    conf = folder / "pip.conf"
    conf.write_text("[global]\n" + "".join(f"{k} = {v}\n" for k, v in settings.items()))
    return Buildah(folder, conf, local_volumes(settings))


def pip_settings() -> dict[str, str]:
    """Pip's settings of this machine, wherever they come from."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = " ".join(str(ast.literal_eval(value)).split())
    return found


def local_volumes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """What the settings name on this machine, mounted at the same place."""
    paths = {p for v in settings.values() for p in re.findall(r"(?:^| |file://)(/[\w./-]+)", v)}
    paths = {p.removesuffix("/simple") for p in paths}  # an index's files lie beside its pages
    there = sorted(p for p in paths if Path(p).exists())
    tops = [p for p in there if not any(p.startswith(f"{o}/") for o in there)]
    return tuple(word for p in tops for word in ("--volume", f"{p}:{p}:ro"))
