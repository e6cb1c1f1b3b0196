"""The whole of `rig image` but the building: a docker in shell writes down what it is asked."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tomli_w

from rig.errors import RigError
from rig.image.build import ImageWishes, build_image, unresolved_base
from rig.image.tools import Tool, find
from rig.layout import Layout
from rig.pins import Arch, Flavour, Pin, read_pin

from ..wheel.wheel_fabric import CHANGES, Fabric

DIGEST = "sha256:" + "a" * 64
DOCKER = f"""#!/bin/sh
echo "$*" >>"$DOCKER_LOG"
case "$1" in
    version) echo 28.2.2 ;;
    image) echo '[{{"RepoDigests": ["vllm/vllm-openai@{DIGEST}"], "Architecture": "amd64",
                   "Size": 12345}}]' ;;
    build) [ -z "$DOCKER_FAILS" ] || {{ echo "step 3 failed" >&2; exit 17; }}
           for folder; do :; done
           sleep "$DOCKER_S"; ls "$folder/Dockerfile" >/dev/null && echo built >>"$DOCKER_LOG" ;;
esac
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the docker on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("DOCKER_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("DOCKER_FAILS", "")
    monkeypatch.setenv("DOCKER_S", "0")
    return tmp_path / "log"


@pytest.fixture
def made(fabric: Fabric, checkout: Layout) -> tuple[Layout, Pin, Path]:
    """A checkout with a fabricated pin, and a wheel of it."""
    layout = fabric.layout
    for name in ("docker", "scripts", "requirements", "rig"):
        (layout.root / name).symlink_to(checkout.root / name)
    wheel = fabric.build(fabric.series(CHANGES)).path
    pin = fabric.pin()
    layout.pins.mkdir(parents=True)
    table = pin.model_dump(mode="json", exclude_none=True)
    (layout.pins / f"{pin.version}.toml").write_text(tomli_w.dumps(table))
    layout.series.write_text("0101-platform-x.patch\n")
    layout.revision.write_text("1\n")
    return layout, pin, wheel


def build(made: tuple[Layout, Pin, Path], wishes: ImageWishes | None = None) -> int | None:
    layout, pin, wheel = made
    pin = read_pin(layout.pins / f"{pin.version}.toml")
    wishes = wishes or ImageWishes()
    return build_image(layout, pin, Flavour.CUDA, Arch.X86_64, wheel, Tool.DOCKER, wishes).bytes


def test_from_the_tag_to_the_image(made: tuple[Layout, Pin, Path], asked: Path) -> None:
    assert find() == (Tool.DOCKER, [])
    assert build(made) == 12345
    layout, pin, wheel = made
    lines = asked.read_text().splitlines()
    assert lines[1] == "pull --platform linux/amd64 vllm/vllm-openai:v1.2.3"
    (command,) = [line for line in lines if line.startswith("build ")]
    assert f"--build-arg BASE=vllm/vllm-openai@{DIGEST} " in command
    assert "--tag vllm-rig:1.2.3-rig.1-cuda" in command
    context = Path(command.partition("-cuda ")[2])
    assert (context / "wheel" / wheel.name).is_file()
    image = read_pin(layout.pins / f"{pin.version}.toml").image
    assert image is not None and image.digests == {Arch.X86_64: DIGEST}
    assert DIGEST in (context / f"series/patches/pins/{pin.version}.toml").read_text()


def test_the_second_build_stands_on_the_digest(made: tuple[Layout, Pin, Path], asked: Path) -> None:
    build(made)
    asked.unlink()
    build(made, ImageWishes(tag="mine:1", more=("--no-cache",)))
    lines = asked.read_text().splitlines()
    assert not [line for line in lines if line.startswith("pull")]  # docker has it
    assert lines[0] == f"image inspect vllm/vllm-openai@{DIGEST}"
    assert "--tag mine:1 --no-cache " in lines[1]


def test_a_build_that_fails(
    made: tuple[Layout, Pin, Path], asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_FAILS", "1")
    with pytest.raises(RigError, match="docker build failed with status 17"):
        build(made)


def test_two_at_once_build_one_after_the_other(
    made: tuple[Layout, Pin, Path], asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(made)  # the digest is recorded
    asked.unlink()
    monkeypatch.setenv("DOCKER_S", "1")
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(build, made) for _ in range(2)]
        assert [one.result(30) for one in both] == [12345, 12345]
    kinds = [line.split()[0] for line in asked.read_text().splitlines()]
    assert [kind for kind in kinds if kind != "image"] == ["build", "built"] * 2


def test_a_wheel_of_another_release_is_refused_before_anything_is_fetched(
    made: tuple[Layout, Pin, Path], asked: Path, checkout: Layout
) -> None:
    layout, pin, wheel = made
    other = pin.model_copy(update={"version": "0.33.0"})
    with pytest.raises(RigError, match=r"image is to be 0\.33\.0"):
        build_image(layout, other, Flavour.CUDA, Arch.X86_64, wheel, Tool.DOCKER, ImageWishes())
    assert not asked.exists()


def test_a_wheel_for_another_processor_is_refused_before_anything_is_fetched(
    made: tuple[Layout, Pin, Path], asked: Path
) -> None:
    layout, pin, wheel = made
    wheel = wheel.rename(wheel.with_name("vllm-1.2.3+rig.1-cp38-abi3-manylinux_2_28_x86_64.whl"))
    arguments = (layout, pin, Flavour.CUDA)
    with pytest.raises(RigError, match="another processor, the image is to be for aarch64"):
        build_image(*arguments, Arch.AARCH64, wheel, Tool.DOCKER, ImageWishes())
    assert not asked.exists()
    build_image(*arguments, Arch.X86_64, wheel, Tool.DOCKER, ImageWishes())


def test_what_is_known_without_asking(made: tuple[Layout, Pin, Path]) -> None:
    _, pin, _ = made
    assert unresolved_base(pin, Flavour.CUDA, Arch.X86_64, None).reference == (
        "vllm/vllm-openai:v1.2.3"
    )
    assert unresolved_base(pin, Flavour.CUDA, Arch.X86_64, "mine:2").reference == "mine:2"


def test_no_docker_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("docker") is None
    with pytest.raises(RigError, match="no program that builds images"):
        find()
