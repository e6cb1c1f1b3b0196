"""The real wheels: built from the real releases, inspected in full, installed by pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Arch, Flavour, find_pin, read_pins
from rig.revision import read_revision
from rig.series.apply import apply
from rig.series.listing import read_mails
from rig.wheel.build import BuiltWheel, build_wheel
from rig.wheel.inspect import describe, inspect_wheel

pytestmark = pytest.mark.network

_OURS = layout_of_this_checkout()
_PRIMARY = find_pin(_OURS, None).version
_WITH_CPU = next(p.version for p in read_pins(_OURS) if Flavour.CPU in p.wheels)
_WHEELS = [(_PRIMARY, Flavour.CUDA), (_WITH_CPU, Flavour.CPU)]
_ALL = [
    pytest.param(
        p.version, flavour, marks=[] if (p.version, flavour) in _WHEELS else pytest.mark.full
    )
    for p in read_pins(_OURS)
    for flavour in p.wheels
]


def _build(layout: Layout, version: str, flavour: Flavour, out: Path) -> BuiltWheel:
    pin = find_pin(layout, version)
    tree = apply(layout, pin)
    return build_wheel(layout, tree, flavour, Arch.X86_64, read_revision(layout), out_folder=out)


@pytest.mark.parametrize(("version", "flavour"), _ALL)
def test_a_wheel_holds_the_series_and_nothing_else_changed(
    layout: Layout, tmp_path: Path, version: str, flavour: Flavour
) -> None:
    built = _build(layout, version, flavour, tmp_path)
    inspect_wheel(built.path, full=True)
    provenance = describe(built.path)
    suffix = ".cpu" if flavour is Flavour.CPU else ""
    assert built.version == provenance.version == f"{version}+rig.{read_revision(layout)}{suffix}"
    mails = [m for _, m in read_mails(layout, find_pin(layout, version))]
    assert [p.number for p in provenance.patches] == [m.number for m in mails]
    assert "vllm/rig_provenance.py" in provenance.files


@pytest.mark.parametrize(("version", "flavour"), _WHEELS)
def test_two_builds_on_two_paths_give_the_same_bytes(
    layout: Layout, tmp_path: Path, version: str, flavour: Flavour
) -> None:
    first = _build(layout, version, flavour, tmp_path / "one")
    second = _build(layout, version, flavour, tmp_path / "another path")
    assert first.sha256 == second.sha256


@pytest.mark.parametrize(("version", "flavour"), _WHEELS)
def test_pip_installs_it_and_the_installation_is_found_whole(
    layout: Layout, tmp_path: Path, version: str, flavour: Flavour
) -> None:
    built = _build(layout, version, flavour, tmp_path)
    target = tmp_path / "site"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--no-compile", "--target", str(target), str(built.path)),
        ],
        check=True,
    )
    folder = next(target.glob("vllm-*.dist-info"))
    assert folder.name == f"vllm-{built.version}.dist-info"
    assert f"__version__ = version = '{built.version}'" in (
        target / "vllm" / "_version.py"
    ).read_text("utf-8")
