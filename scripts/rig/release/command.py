"""`rig release`: prove the series, build each wheel twice, write what goes out with it."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.console import console
from rig.download import sha256_of
from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Arch
from rig.release.changelog import changelog, commits_since
from rig.release.changes import Series
from rig.release.committed import checkout_patches
from rig.release.contents import read_contents
from rig.release.folder import SUMS, staging, write_sums
from rig.release.point import Point, release_point
from rig.release.sbom import sbom_text
from rig.release.series_read import read_pinned_series
from rig.release.statement import statement_text
from rig.release.wanted import Wanted, wanted_wheels
from rig.series.apply import apply
from rig.series.listing import patches_for
from rig.series.scratch import scratch_folder
from rig.series.verify import verify
from rig.wheel.build import BuiltWheel, build_wheel

CHANGELOG = "CHANGELOG.md"
_GO_OUT = ("LICENSE", "NOTICE")
_TOOLS = "requirements/tools.txt"


@dataclass(frozen=True)
class Released:
    """A release that lies in dist/.

    Args:
        digests: file name -> sha256; `SHA256SUMS` itself is not among them.
    """

    point: Point
    folder: Path
    digests: dict[str, str]


def preview(
    layout: Layout, texts: Sequence[str], arch: Arch | None
) -> tuple[Point, list[Wanted], str]:
    """What a release would be, and its changelog; nothing is built or proven.

    Raises:
        RigError: what keeps a release from being made of this checkout.
    """
    point = release_point(layout)
    wanted = wanted_wheels(layout, texts, arch)
    with scratch_folder(layout, "release") as scratch:
        return point, wanted, _changelog(layout, point, scratch)


def release(
    layout: Layout, texts: Sequence[str], arch: Arch | None, *, require_quilt: bool
) -> Released:
    """Make `dist/release-<version>/`.

    Args:
        texts, arch: the wheels, see `wanted_wheels`.
        require_quilt: see `verify`.

    Raises:
        RigError: the checkout may not be released, the series does not hold, or two builds of a
            wheel differ. Nothing is left in dist/ then.
    """
    point = release_point(layout)
    wanted = wanted_wheels(layout, texts, arch)
    with scratch_folder(layout, "release") as scratch:
        notes = _changelog(layout, point, scratch)
        verify(layout, require_quilt=require_quilt)
        series = read_pinned_series(layout, "this checkout")
        second = checkout_patches(layout, point.commit, scratch / "another path")
        target = layout.dist / f"release-{point.version}"
        with staging(target) as part:
            (part / CHANGELOG).write_text(notes, "utf-8")
            for name in _GO_OUT:
                shutil.copyfile(layout.root / name, part / name)
            for one in wanted:
                _write_wheel(layout, second, one, point, series, part)
            (part / ".lock").unlink(missing_ok=True)  # of the builds
            digests = write_sums(part)
            if release_point(layout) != point:
                raise RigError(
                    "the checkout changed while the release was made",
                    where=layout.root,
                    next_step="run it again, and leave the checkout alone meanwhile",
                )
    return Released(point, target, {**digests, SUMS: sha256_of(target / SUMS)})


def _changelog(layout: Layout, point: Point, scratch: Path) -> str:
    new = read_pinned_series(layout, "this checkout")
    old: Series | None = None
    if point.previous is not None:
        before = checkout_patches(layout, point.previous.commit, scratch / "the last release")
        old = read_pinned_series(before, point.previous.name)
    return changelog(point, old, new, commits_since(layout, point))


def _write_wheel(
    layout: Layout, second: Layout, wanted: Wanted, point: Point, series: Series, part: Path
) -> None:
    wheel = _built_twice(layout, second, wanted, point, part)
    contents = read_contents(wheel.path, wheel.sha256, wanted.arch)
    patches = series[wanted.pin.version].patches
    sbom = sbom_text(contents, wanted.artifact, patches, point.seconds)
    name = f"{wheel.path.name}.cdx.json"
    (part / name).write_text(sbom, "utf-8")
    others = {name: hashlib.sha256(sbom.encode()).hexdigest()}
    statement = statement_text(contents, wanted, point, _texts(layout, wanted), others)
    (part / f"{wheel.path.name}.provenance.json").write_text(statement, "utf-8")


def _texts(layout: Layout, wanted: Wanted) -> dict[str, str]:
    paths = [p.path for p in patches_for(layout, wanted.pin)]
    paths += [layout.pins / f"{wanted.pin.version}.toml", layout.lock(wanted.pin.version)]
    paths += [layout.root / _TOOLS]
    return {layout.shown(p): sha256_of(p) for p in paths}


def _built_twice(
    layout: Layout, second: Layout, wanted: Wanted, point: Point, part: Path
) -> BuiltWheel:
    """Build a wheel from build/, and again from what is committed, at another path."""
    tree = apply(layout, wanted.pin)
    wheel = build_wheel(layout, tree, wanted.flavour, wanted.arch, point.revision, out_folder=part)
    other_tree = apply(second, wanted.pin)
    again = build_wheel(second, other_tree, wanted.flavour, wanted.arch, point.revision)
    if again.sha256 != wheel.sha256:
        raise RigError(
            f"two builds of {wheel.path.name} differ",
            where=f"{wheel.sha256} and {again.sha256}",
            detail="\n".join(_differing(wheel.path, again.path)) or "only in how it is packed",
            next_step="it is not released: report this with the names above",
        )
    console.print(f"built twice, the same bytes: {wheel.path.name}", markup=False)
    again.path.unlink()
    return wheel


def _differing(one: Path, other: Path) -> list[str]:
    with zipfile.ZipFile(one) as left, zipfile.ZipFile(other) as right:
        mine = {m.filename: m.CRC for m in left.infolist()}
        theirs = {m.filename: m.CRC for m in right.infolist()}
    return [n for n in sorted(mine | theirs) if mine.get(n) != theirs.get(n)]
