"""The committed requirements of the engine's environments."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from rig.launch.engine_environment import RAY_VERSION
from rig.layout import layout_of_this_checkout
from rig.pins import Flavour, Pin, read_pins
from rig.rehearsal.environment import requirement_files

LAYOUT = layout_of_this_checkout()
PINS = [pin for pin in read_pins(LAYOUT) if Flavour.CPU in pin.wheels]


def requirements(text: str) -> dict[str, Requirement]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    found = [Requirement(line) for line in lines if line]
    assert len({r.name.lower() for r in found}) == len(found)
    return {r.name.lower(): r for r in found}


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.version)
def test_every_version_is_exact_and_of_no_one_place(pin: Pin) -> None:
    _, versions = requirement_files(LAYOUT, pin)
    for requirement in requirements(versions.read_text("utf-8")).values():
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert "+" not in specifier.version
        assert "*" not in specifier.version
        assert requirement.url is None


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.version)
def test_they_are_the_versions_that_the_pin_and_the_launcher_name(pin: Pin) -> None:
    asked_file, versions_file = requirement_files(LAYOUT, pin)
    asked = requirements(asked_file.read_text("utf-8"))
    versions = requirements(versions_file.read_text("utf-8"))
    assert str(versions["torch"].specifier) == f"=={pin.torch}"
    assert str(versions["ray"].specifier) == str(asked["ray"].specifier) == f"=={RAY_VERSION}"
    assert asked.keys() <= versions.keys()
    # ray[llm] brings another vLLM.
    assert not asked["ray"].extras


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.version)
def test_what_depends_on_the_build_of_torch_is_left_to_torch(pin: Pin) -> None:
    _, versions = requirement_files(LAYOUT, pin)
    names = requirements(versions.read_text("utf-8")).keys()
    # torchaudio and torchcodec die beside a torch without CUDA.
    unwanted = ("triton", "nvidia-", "cuda-", "torchaudio", "torchcodec", "vllm")
    assert not [name for name in names if name.startswith(unwanted)]
