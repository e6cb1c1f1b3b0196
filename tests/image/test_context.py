"""What lies in the folder that an image is built in."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.image.context import Context, dockerfile, needs_of, plan_context, write_context
from rig.layout import Layout
from rig.pins import Flavour, find_pin

from ..wheel.wheel_fabric import CHANGES, Fabric

FLAVOURS = [Flavour.CUDA, Flavour.CPU]


@pytest.fixture
def wheel(fabric: Fabric) -> Path:
    return fabric.build(fabric.series(CHANGES)).path


def written(checkout: Layout, flavour: Flavour, wheel: Path, folder: Path) -> Path:
    pin = find_pin(checkout, "0.32.0")
    write_context(plan_context(checkout, pin, flavour, wheel), folder)
    return folder


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_everything_that_the_dockerfile_copies_is_there(
    checkout: Layout, docker: Path, wheel: Path, tmp_path: Path, flavour: Flavour
) -> None:
    folder = written(checkout, flavour, wheel, tmp_path / "context")
    text = (docker / dockerfile(flavour)).read_text()
    copied = set()
    for line in re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE):
        sources = line.split()[:-1]
        assert all((folder / source).exists() for source in sources), line
        copied |= {source.rstrip("/") for source in sources}
    tops = {path.name for path in folder.iterdir()} - {"Dockerfile"}
    assert {name for name in tops if name not in copied} == set(), "nobody copies it"


def test_the_tools_can_run_from_it(checkout: Layout, wheel: Path, tmp_path: Path) -> None:
    folder = written(checkout, Flavour.CUDA, wheel, tmp_path / "context")
    for place in (
        "tools/rig",
        "tools/scripts/tools-env.sh",
        "rig/scripts/rig/__main__.py",
        "rig/scripts/rigs/4x3090.toml",
        "rig/scripts/serve-4x3090.sh",
        "rig/scripts/p2p_check",
        "series/patches/pins/0.33.0.toml",
    ):
        assert (folder / place).exists(), place
    assert (folder / "series/patches/series").read_bytes() == checkout.series.read_bytes()
    assert (folder / "wheel" / wheel.name).read_bytes() == wheel.read_bytes()


def test_nothing_else_is_in_it(checkout: Layout, wheel: Path, tmp_path: Path) -> None:
    folder = written(checkout, Flavour.CUDA, wheel, tmp_path / "context")
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    assert not [n for n in names if re.search(r"__pycache__|\.pyc$|\.patch$|(^|/)tests?/|\.git", n)]
    assert sum(p.stat().st_size for p in (folder / "rig").rglob("*") if p.is_file()) < 5e6


def test_a_person_s_umask_does_not_matter(checkout: Layout, wheel: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = written(checkout, Flavour.CPU, wheel, tmp_path / "context")
    finally:
        os.umask(before)
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode & 0o777
        assert mode == 0o755 if path.is_dir() else mode in (0o644, 0o755), path
    assert os.access(folder / "rig/entrypoint.sh", os.X_OK)


def test_an_old_folder_is_replaced(checkout: Layout, wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "old").write_text("")
    folder = written(checkout, Flavour.CUDA, wheel, tmp_path / "context")
    assert not (folder / "old").exists()


def test_what_could_not_be_written_whole_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "old").write_text("")
    copies = {"a": tmp_path / "there", "b": tmp_path / "none"}
    with pytest.raises(
        RigError, match="cannot make the folder that the image is built in: No such"
    ):
        write_context(Context(copies, {}), tmp_path / "context")
    assert {p.name for p in tmp_path.iterdir()} == {"there", "context"}
    assert (tmp_path / "context" / "old").is_file()


def test_what_the_cpu_engine_needs_is_what_its_wheel_asks_for(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path / "cpu", flavour=Flavour.CPU)
    asked = needs_of(fabric.build(fabric.series(CHANGES)).path)
    assert asked[0] == "regex"
    assert asked[1].startswith("torch==2.13.0;")
    assert not [line for line in asked if "extra" in line or line.startswith("av")]


def test_a_damaged_wheel(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"no wheel")
    with pytest.raises(RigError, match="the wheel cannot be read"):
        needs_of(tmp_path / "x.whl")
