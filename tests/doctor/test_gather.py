"""What is found out beside the box: the engine's torch and Ray, ports, the pins."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from rig.doctor.gather import gather, gather_for_text, try_port, user_name
from rig.doctor.wheel_cuda import CUDA_OF_TORCH, ask_environment, cuda_in_version_file
from rig.errors import RigError
from rig.layout import layout_of_this_checkout
from rig.pins import read_pins
from tests.doctor.kit import box, verdict

# What torch writes into version.py: one line per kind of build.
_CUDA_BUILD = "debug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'abc'\n"
_CPU_BUILD = "cuda: Optional[str] = None\nhip: Optional[str] = None\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_CUDA_BUILD, (True, (13, 0))),
        ("cuda = '12.8'\n", (True, (12, 8))),
        (_CPU_BUILD, (True, None)),
        ("__version__ = '1'\n", (False, None)),
        ("cuda_home = '12.8'\n", (False, None)),
    ],
)
def test_the_cuda_of_a_build(text: str, said: tuple[bool, tuple[int, int] | None]) -> None:
    assert cuda_in_version_file(text) == said


def test_the_table_knows_every_pin() -> None:
    """A new pin needs its torch looked up: see the table's comment for where."""
    assert {pin.torch for pin in read_pins(layout_of_this_checkout())} <= set(CUDA_OF_TORCH)


def fake_environment(folder: Path, torch: str | None, ray: str | None, vllm: bool = True) -> Path:
    """An interpreter that sees packages of our making: a script that sets its path."""
    packages = folder / "packages"
    for name, version in (("vllm", "0.33.0+rig.3" if vllm else None), ("ray", ray)):
        if version is not None:
            _distribution(packages, name, version)
    if torch is not None:
        _distribution(packages, "torch", "2.14.0")
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text("raise ImportError('was imported')\n")
        (packages / "torch" / "version.py").write_text(torch)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def _distribution(packages: Path, name: str, version: str) -> None:
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_an_environment_tells_its_torch_without_importing_it(tmp_path: Path) -> None:
    engine, wheel = ask_environment(fake_environment(tmp_path, _CUDA_BUILD, "2.60.0"))
    assert engine is not None and (engine.vllm, engine.ray) == ("0.33.0+rig.3", "2.60.0")
    assert wheel is not None and (wheel.torch, wheel.cuda) == ("2.14.0", (13, 0))


def test_an_environment_without_ray_and_with_an_odd_torch(tmp_path: Path) -> None:
    engine, wheel = ask_environment(fake_environment(tmp_path, "nothing here\n", None))
    assert engine is not None and engine.ray is None
    assert wheel is None


@pytest.mark.parametrize("python", ["no/such/python", "/bin/false", "/bin/echo"])
def test_what_is_no_interpreter_tells_nothing(python: str) -> None:
    assert ask_environment(Path(python)) == (None, None)


def test_an_environment_without_vllm_is_no_engine(tmp_path: Path) -> None:
    python = fake_environment(tmp_path, _CUDA_BUILD, "2.60.0", vllm=False)
    assert ask_environment(python) == (None, None)


def test_a_taken_port_is_taken_and_a_free_one_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        number = server.getsockname()[1]
        seen = try_port(number)
        assert seen.taken is True
        assert any(holder.startswith("pid ") for holder in seen.holders)
    assert try_port(number).taken is False


def test_a_port_that_cannot_be_tried_is_unknown() -> None:
    assert try_port(8000, host="192.0.2.1").taken is None  # an address that no machine has


def test_the_whole_context(tmp_path: Path) -> None:
    python = fake_environment(tmp_path, _CPU_BUILD, "2.60.0")
    found = gather(
        layout_of_this_checkout(),
        box(),
        python=str(python),
        environment={"CUDA_VISIBLE_DEVICES": "1", "VLLM_WSL2_ENABLE_PIN_MEMORY": "1"},
        ports=(),
        verdict=verdict(),
    )
    assert found.cards == (1,)
    assert found.wsl_pin_memory and found.ports == () and found.user == user_name()
    assert found.wheel is not None and found.wheel.cuda is None
    assert found.verdict == verdict()


def test_a_box_that_cuda_is_told_wrong_of_is_refused() -> None:
    with pytest.raises(RigError, match="no card 7"):
        gather(
            layout_of_this_checkout(),
            box(),
            environment={"CUDA_VISIBLE_DEVICES": "7", "PATH": ""},
            ports=(),
            verdict=verdict(),
        )


def test_without_an_engine_the_pin_tells_the_wheel() -> None:
    found = gather(layout_of_this_checkout(), box(), environment={"PATH": ""}, ports=())
    assert found.engine is None
    assert found.wheel is not None and found.wheel.cuda == (13, 0)
    assert found.verdict is None and "engine" in found.no_verdict


def test_a_text_is_judged_by_nothing_of_this_machine() -> None:
    found = gather_for_text(layout_of_this_checkout())
    assert (found.engine, found.ports, found.user, found.verdict) == (None, None, None, None)
    assert found.wheel is not None
