"""Pin files: what is wrong is named with its file and its key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Arch, Flavour, find_pin, neighbours, primary_pin, read_pin, read_pins

from ..series.releases import pin_table

Edit = Callable[[dict[str, Any]], object]


def written(layout: Layout, version: str, role: str, edit: Edit | None = None) -> Path:
    table = pin_table(version, role, "12" * 32)
    if edit:
        edit(table)
    path = layout.pins / f"{version}.toml"
    path.write_text(tomli_w.dumps(table))
    return path


def refused(path: Path) -> str:
    with pytest.raises(RigError) as caught:
        read_pin(path)
    assert caught.value.where == path
    assert caught.value.next_step
    return str(caught.value)


def test_a_right_pin(layout: Layout) -> None:
    pin = read_pin(written(layout, "0.3.0", "primary"))
    assert (pin.version, pin.role, pin.torch) == ("0.3.0", "primary", "2.13.0")
    assert pin.wheel(Flavour.CUDA, Arch.X86_64).name == "vllm-0.3.0-cp38-abi3-linux_x86_64.whl"


@pytest.mark.parametrize("key", ["version", "role", "commit", "python", "torch", "sdist", "wheels"])
def test_a_missing_key(layout: Layout, key: str) -> None:
    assert f"{key}: Field required" in refused(
        written(layout, "0.3.0", "primary", lambda t: t.pop(key))
    )


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda t: t.update(colour="red"), "colour: Extra"),
        (lambda t: t["sdist"].update(url="x"), "sdist.url: Extra"),
        (lambda t: t["sdist"].pop("sha256"), "sdist.sha256: Field required"),
        (lambda t: t["sdist"].update(sha256="12" * 31), "sdist.sha256: "),
        (lambda t: t["sdist"].update(sha256="AB" * 32), "sdist.sha256: "),
        (lambda t: t["sdist"].update(name="../vllm-0.3.0.tar.gz"), "sdist.name: "),
        (lambda t: t["sdist"].update(name="vllm-0.3.1.tar.gz"), "sdist.name must be"),
        (lambda t: t["wheels"]["cuda"]["x86_64"].pop("name"), "wheels.cuda.x86_64.name: Field"),
        (lambda t: t["wheels"].update(rocm={}), "wheels.rocm"),
        (lambda t: t["wheels"]["cuda"].update(ppc64={}), "wheels.cuda.ppc64"),
        (lambda t: t.update(wheels={}), "wheels: "),
        (
            lambda t: t["wheels"]["cuda"]["x86_64"].update(name="vllm-0.3.1-py3-none-any.whl"),
            "wheels.cuda.x86_64.name is of another version",
        ),
        (lambda t: t["wheels"].update(cpu=t["wheels"]["cuda"]), "[cpu] come together"),
        (lambda t: t.update(cpu={"known_differences": []}), "[cpu] come together"),
        (lambda t: t.update(role="tertiary"), "role: "),
        (lambda t: t.update(version="v0.3.0"), "version: "),
        (lambda t: t.update(version="latest"), "version: "),
        (lambda t: t.update(version="0.3.0+cu1"), "version: "),
        (lambda t: t.update(version=3), "version: "),
        (lambda t: t.update(torch="two"), "torch: "),
        (lambda t: t.update(commit="main"), "commit: "),
        (lambda t: t.update(skip={"1": "far too long ago"}), "skip.1"),
        (lambda t: t.update(skip={"0101": "short"}), "skip.0101: "),
        (lambda t: t.update(skip={"0101": " " * 40}), "skip.0101: "),
    ],
)
def test_a_wrong_key(layout: Layout, edit: Edit, said: str) -> None:
    assert said in refused(written(layout, "0.3.0", "primary", edit))


def test_all_wrong_keys_at_once(layout: Layout) -> None:
    said = refused(written(layout, "0.3.0", "third", lambda t: (t.pop("torch"), t.pop("sdist"))))
    assert "role: " in said
    assert "torch: " in said
    assert "sdist: " in said


@pytest.mark.parametrize("content", [b"version = ", b"\xff\xfe\x00", b"[[[", b"a = 1\na = 2\n"])
def test_what_is_not_toml(layout: Layout, content: bytes) -> None:
    path = layout.pins / "0.3.0.toml"
    path.write_bytes(content)
    assert "not TOML" in refused(path)


def test_a_file_that_cannot_be_read(layout: Layout) -> None:
    path = layout.pins / "0.3.0.toml"
    path.mkdir()
    with pytest.raises(RigError, match="cannot read the pin"):
        read_pin(path)


def test_the_file_name_is_the_version(layout: Layout) -> None:
    path = written(layout, "0.3.0", "primary").rename(layout.pins / "0.3.1.toml")
    assert "the file name says 0.3.1, its version key 0.3.0" in refused(path)


def test_pins_come_newest_first(layout: Layout) -> None:
    for version in ("0.9.0", "0.30.0", "0.31.0rc1"):
        written(layout, version, "secondary")
    written(layout, "0.31.0", "primary")
    assert [p.version for p in read_pins(layout)] == ["0.31.0", "0.31.0rc1", "0.30.0", "0.9.0"]
    assert primary_pin(layout).version == "0.31.0"


@pytest.mark.parametrize("roles", [("primary", "primary"), ("secondary", "secondary"), ()])
def test_there_is_one_primary(layout: Layout, roles: tuple[str, ...]) -> None:
    for at, role in enumerate(roles):
        written(layout, f"0.{at}.0", role)
    with pytest.raises(RigError, match="role primary, there must be one") as caught:
        read_pins(layout)
    if roles == ("primary", "primary"):
        assert "0.1.0, 0.0.0" in caught.value.what


def test_an_unknown_version_lists_what_exists_and_the_nearest(layout: Layout) -> None:
    written(layout, "0.31.0", "secondary")
    written(layout, "0.33.0", "primary")
    assert find_pin(layout, None).version == "0.33.0"
    assert find_pin(layout, "v0.31.0").version == "0.31.0"
    with pytest.raises(RigError, match=r"vLLM 0\.33\.1 is not pinned") as caught:
        find_pin(layout, "0.33.1")
    step = str(caught.value.next_step)
    assert "pinned: 0.33.0, 0.31.0" in step
    assert "nearest: 0.33.0)" in step
    assert "`./rig pins add VERSION`" in step


@pytest.mark.parametrize(
    ("version", "near"),
    [
        ("0.32.1", ["0.32.0", "0.33.0"]),
        ("0.9.1", ["0.9.0", "0.32.0"]),
        ("0.1", ["0.9.0"]),
        ("v1.0", ["0.33.0"]),
        ("latest", []),
    ],
)
def test_the_nearest_by_order_not_by_letters(version: str, near: list[str]) -> None:
    assert neighbours(version, ["0.33.0", "0.32.0", "0.9.0"]) == near


def test_a_wheel_that_does_not_exist(layout: Layout) -> None:
    pin = read_pin(written(layout, "0.3.0", "primary"))
    with pytest.raises(RigError, match="no cpu wheel for x86_64") as caught:
        pin.wheel(Flavour.CPU, Arch.X86_64)
    assert "cuda x86_64" in str(caught.value.next_step)
