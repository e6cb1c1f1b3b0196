"""Images built for a test, and what is in them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rig.image.base import Base
from rig.image.context import plan_context, write_context
from rig.image.plan import ImagePlan, build_command, labels_of, tag_of
from rig.image.tools import Tool
from rig.layout import Layout
from rig.pins import Arch, Flavour, Pin
from rig.wheel.inspect import describe

from .buildah import Buildah


def build(
    buildah: Buildah, checkout: Layout, pin: Pin, flavour: Flavour, wheel: Path, base: str
) -> tuple[str, float]:
    """Build as `rig image` does; the tag, and the seconds of the build alone."""
    folder = buildah.folder / f"context-{flavour}"
    write_context(plan_context(checkout, pin, flavour, wheel), folder)
    provenance = describe(wheel)
    found = Base(base, base, "")
    plan = ImagePlan(
        tool=Tool.BUILDAH,
        tag=tag_of(provenance.version, flavour),
        arch=Arch.X86_64,
        base=found,
        labels=labels_of(provenance, "0" * 64, found),
        context=folder,
        pip_settings=buildah.pip_conf,
        more=buildah.volumes,
    )
    started = time.monotonic()
    done = buildah.command(build_command(plan), timeout=1800)
    print(done.stdout[-4000:], done.stderr[-2000:])
    return plan.tag, time.monotonic() - started


def inspection(buildah: Buildah, tag: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(buildah.run("inspect", "--type", "image", tag).stdout)
    return found


def layers(buildah: Buildah, tag: str) -> list[str]:
    oci = inspection(buildah, tag)["OCIv1"]
    assert isinstance(oci, dict)
    ids: list[str] = oci["rootfs"]["diff_ids"]
    return ids


def layer_sizes(buildah: Buildah) -> dict[str, int]:
    """Digest -> bytes, of each layer in the storage."""
    (listed,) = (buildah.folder / "graph").glob("*-layers/layers.json")
    return {
        one["diff-digest"]: one["diff-size"]
        for one in json.loads(listed.read_text())
        if "diff-digest" in one
    }


def config(buildah: Buildah, tag: str) -> dict[str, object]:
    docker = inspection(buildah, tag)["Docker"]
    assert isinstance(docker, dict)
    found: dict[str, object] = docker["config"]
    return found


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def size_of(buildah: Buildah, tag: str) -> int:
    """Bytes of the files in an image."""
    name = buildah.run("from", "--pull=false", tag).stdout.strip()
    try:
        mount = Path(buildah.run("mount", name).stdout.strip())
        said = buildah.command(["du", "-sxb", str(mount)]).stdout
    finally:
        buildah.run("rm", name)
    return int(said.split()[0])


def wait_for(
    ready: Callable[[], bool], running: subprocess.Popen[bytes], log: Path, patience_s: float
) -> None:
    deadline = time.monotonic() + patience_s
    while not ready():
        assert running.poll() is None, log.read_text()[-5000:]
        assert time.monotonic() < deadline, log.read_text()[-5000:]
        time.sleep(0.5)
