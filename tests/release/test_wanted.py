"""Which wheels a release holds."""

from __future__ import annotations

import tomllib

import pytest

from rig.errors import RigError
from rig.pins import Arch
from rig.release.wanted import wanted_wheels

from .shop import X86, Shop


def names(shop: Shop, *texts: str, arch: Arch | None = X86) -> list[str]:
    return [str(w) for w in wanted_wheels(shop.layout, texts, arch)]


def test_the_primary_pin_for_cuda_is_the_default(shop: Shop) -> None:
    assert names(shop) == ["0.3.0:cuda:x86_64"]


def test_all_is_whatever_the_pins_have(shop: Shop) -> None:
    assert names(shop, "all") == ["0.3.0:cuda:x86_64", "0.2.0:cpu:x86_64", "0.2.0:cuda:x86_64"]


def test_all_is_for_every_processor_unless_one_is_named(shop: Shop) -> None:
    table = tomllib.loads((shop.layout.pins / "0.3.0.toml").read_text())
    arm = {n: v.replace("x86_64", "aarch64") for n, v in table["wheels"]["cuda"]["x86_64"].items()}
    shop.edit_pin("0.3.0", wheels={"cuda": {**table["wheels"]["cuda"], "aarch64": arm}})
    of_x86 = ["0.3.0:cuda:x86_64", "0.2.0:cpu:x86_64", "0.2.0:cuda:x86_64"]
    assert names(shop, "all", arch=None) == ["0.3.0:cuda:aarch64", *of_x86]
    assert names(shop, "all", arch=X86) == of_x86


def test_the_order_of_asking_does_not_matter(shop: Shop) -> None:
    asked = ["0.2.0:cuda", "0.3.0:cuda:x86_64", "v0.2.0:cpu"]
    assert names(shop, *asked) == names(shop, *reversed(asked)) == names(shop, "all")


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (["0.3.0"], "a wheel is VERSION:FLAVOUR"),
        (["0.3.0:cuda:x86_64:1"], "a wheel is VERSION:FLAVOUR"),
        (["0.3.0:gpu"], "'gpu' is not a known Flavour"),
        (["0.3.0:cuda:riscv"], "'riscv' is not a known Arch"),
        (["0.9.0:cuda"], "vLLM 0.9.0 is not pinned"),
        (["0.3.0:cpu"], "vLLM 0.3.0 has no cpu wheel for x86_64"),
        (["0.3.0:cuda:aarch64"], "vLLM 0.3.0 has no cuda wheel for aarch64"),
        (["0.3.0:cuda", "0.3.0:cuda:x86_64"], "asked for twice"),
        (["all", "0.3.0:cuda"], "`all` goes with no other wheel"),
    ],
)
def test_what_cannot_be_built_is_refused(shop: Shop, texts: list[str], what: str) -> None:
    with pytest.raises(RigError) as caught:
        names(shop, *texts)
    assert what in str(caught.value)


def test_a_processor_without_wheels_is_refused(shop: Shop) -> None:
    with pytest.raises(RigError, match="no pin has a wheel for aarch64"):
        names(shop, "all", arch=Arch.AARCH64)
    with pytest.raises(RigError, match="has no cuda wheel for aarch64"):
        names(shop, arch=Arch.AARCH64)
