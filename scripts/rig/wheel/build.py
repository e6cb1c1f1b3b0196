"""Building a rig wheel out of a release's wheel: read, plan, write, prove, publish."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rig.console import console
from rig.download import fetch, sha256_of
from rig.layout import Layout
from rig.pins import Arch, Flavour
from rig.series.applied import AppliedTree
from rig.wheel.archive import Archive
from rig.wheel.archive_writer import ArchiveWriter
from rig.wheel.compare import compare_with_release
from rig.wheel.inspect import inspect_wheel
from rig.wheel.naming import parse_wheel_name, rig_version
from rig.wheel.output import replacing
from rig.wheel.plan import Plan, Written, plan_repack
from rig.wheel.release import read_base
from rig.wheel.scope import sort_changes
from rig.wheel.tree import read_sources

_BUFFER = 1 << 20


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel that was built and proven.

    Args:
        seconds: from the verified download on to the end.
        patched: files under `vllm/` that differ from the release, or are gone.
        outside: files that the series changes and no wheel holds, such as tests.
    """

    path: Path
    version: str
    sha256: str
    seconds: float
    patched: tuple[str, ...]
    outside: tuple[str, ...]


def build_wheel(
    layout: Layout,
    applied: AppliedTree,
    flavour: Flavour,
    arch: Arch,
    revision: int,
    *,
    out_folder: Path | None = None,
) -> BuiltWheel:
    """Build `vllm-<release>+rig.<revision>[.cpu]-<tag>.whl`.

    Args:
        applied: the applied series, proven against its lock.
        revision: the series' revision, 0 or more.
        out_folder: where to write; the checkout's `dist` when not given.

    Raises:
        RigError: the series changes something that a repack cannot carry, the release wheel is
            not what the pin says, or the result could not be written or is not as planned.
    """
    pin = applied.pin
    scope = sort_changes(applied.changed)
    artifact = pin.wheel(flavour, arch)
    base_name = parse_wheel_name(artifact.name)
    version = rig_version(pin.version, revision, flavour)
    folder = out_folder or layout.dist
    release = fetch(layout, artifact)
    started = time.monotonic()
    sources = read_sources(applied, scope.packaged)
    with Archive(release) as archive:
        base = read_base(archive, base_name, sources.pristine)
        plan = plan_repack(base, sources, scope, applied, flavour, version)
        with replacing(folder / plan.name.file_name) as part:
            write_plan(archive, plan, part)
            inspect_wheel(part, name=plan.name.file_name)
            compare_with_release(part, plan.name, release, base_name, applied, flavour)
            digest = sha256_of(part)
    seconds = time.monotonic() - started
    console.print(f"built {layout.shown(folder / plan.name.file_name)} in {seconds:.1f} s")
    return BuiltWheel(
        path=folder / plan.name.file_name,
        version=version,
        sha256=digest,
        seconds=seconds,
        patched=tuple(sorted(f.path for f in scope.packaged)),
        outside=scope.outside,
    )


def write_plan(archive: Archive, plan: Plan, target: Path) -> None:
    """Write a planned wheel.

    Raises:
        OSError: the target cannot be written.
    """
    with target.open("wb", buffering=_BUFFER) as file:
        writer = ArchiveWriter(file)
        for step in plan.steps:
            if isinstance(step, Written):
                writer.add(step.name, step.data, step.mode)
            else:
                writer.copy(archive, step.source, step.name)
        writer.finish()
