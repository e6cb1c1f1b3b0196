"""The base image: looked up once, recorded in the pin, and nothing else from then on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import tomli_w

from rig.errors import RigError
from rig.image.base import CPU_BASE, Base, repository, resolve_base, with_digest
from rig.image.tools import Answered, Tool
from rig.layout import Layout
from rig.pins import Arch, Flavour, Pin, read_pin

from ..series.releases import pin_table

TAG = "vllm/vllm-openai:v0.3.0"
NAME = "vllm/vllm-openai"
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


class Registry:
    """Docker with a registry behind it: what a tag names, and what was fetched."""

    def __init__(self, digest: str = A, arch: str = "amd64", here: Sequence[str] = ()) -> None:
        self.digest, self.arch = digest, arch
        self.here = set(here)
        self.fetched: list[str] = []

    def run(self, command: Sequence[str]) -> None:
        self.fetched.append(command[-1])
        self.here.add(command[-1])

    def ask(self, command: Sequence[str]) -> Answered:
        if command[-1] not in self.here:
            return Answered(1, "", "no such image")
        names = [f"{NAME}@{self.digest}"] if self.digest else []
        answer = {"RepoDigests": names, "Architecture": self.arch, "Size": 1}
        return Answered(0, json.dumps([answer]), "")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path, tmp_path / "cache")
    made.pins.mkdir(parents=True)
    table = pin_table("0.3.0", "primary", "12" * 32) | {"skip": {"0425": "there is no such model"}}
    (made.pins / "0.3.0.toml").write_text("# a comment\n" + tomli_w.dumps(table))
    return made


def pin_of(layout: Layout) -> Pin:
    return read_pin(layout.pins / "0.3.0.toml")


def resolve(
    layout: Layout,
    registry: Registry,
    flavour: Flavour = Flavour.CUDA,
    own: str | None = None,
) -> Base:
    return resolve_base(
        layout,
        pin_of(layout),
        flavour,
        Arch.X86_64,
        Tool.DOCKER,
        own=own,
        ask=registry.ask,
        run=registry.run,
    )


def test_the_first_build_records_what_the_tag_names(layout: Layout) -> None:
    before = (layout.pins / "0.3.0.toml").read_text()
    registry = Registry()
    base = resolve(layout, registry)
    assert base == Base(f"{NAME}@{A}", TAG, A, recorded=True)
    assert registry.fetched == [TAG]
    image = pin_of(layout).image
    assert image is not None
    assert (image.name, image.digests) == (TAG, {Arch.X86_64: A})
    assert (layout.pins / "0.3.0.toml").read_text().startswith(before.rstrip())


def test_a_tag_is_looked_up_anew_although_an_image_of_that_name_is_here(layout: Layout) -> None:
    registry = Registry(here=[TAG])
    resolve(layout, registry)
    assert registry.fetched == [TAG]


def test_later_builds_ask_for_the_digest(layout: Layout) -> None:
    resolve(layout, Registry())
    registry = Registry()
    base = resolve(layout, registry)
    assert base == Base(f"{NAME}@{A}", TAG, A)
    assert registry.fetched == [f"{NAME}@{A}"]


def test_nothing_is_fetched_if_it_is_here(layout: Layout) -> None:
    resolve(layout, Registry())
    registry = Registry(here=[f"{NAME}@{A}"])
    assert resolve(layout, registry).reference == f"{NAME}@{A}"
    assert registry.fetched == []


def test_another_image_is_refused(layout: Layout) -> None:
    resolve(layout, Registry())
    with pytest.raises(RigError, match="not the pinned one") as caught:
        resolve(layout, Registry(digest=B))
    assert A in str(caught.value.where) and B in str(caught.value.where)


def test_a_base_for_another_processor_is_refused_and_not_recorded(layout: Layout) -> None:
    with pytest.raises(RigError, match="for arm64, the image is to be for amd64"):
        resolve(layout, Registry(arch="arm64"))
    assert pin_of(layout).image is None


def test_an_image_without_a_digest_cannot_be_pinned(layout: Layout) -> None:
    with pytest.raises(RigError, match="cannot be pinned"):
        resolve(layout, Registry(digest=""))


@pytest.mark.parametrize(
    ("flavour", "own", "reference"),
    [(Flavour.CUDA, "mine:1", "mine:1"), (Flavour.CPU, None, CPU_BASE)],
)
def test_no_other_base_is_recorded(
    layout: Layout, flavour: Flavour, own: str | None, reference: str
) -> None:
    assert resolve(layout, Registry(), flavour, own).reference == reference
    assert pin_of(layout).image is None


def test_a_second_processor_joins_the_first(layout: Layout) -> None:
    text = with_digest((layout.pins / "0.3.0.toml").read_text(), TAG, Arch.X86_64, A)
    (layout.pins / "0.3.0.toml").write_text(with_digest(text, TAG, Arch.AARCH64, B))
    image = pin_of(layout).image
    assert image is not None
    assert image.digests == {Arch.X86_64: A, Arch.AARCH64: B}


def test_real_pins_take_a_digest(checkout: Layout, tmp_path: Path) -> None:
    for path in checkout.pins.glob("*.toml"):
        before = read_pin(path)
        if before.image is None:
            copy = tmp_path / path.name
            copy.write_text(with_digest(path.read_text(), TAG, Arch.X86_64, A))
            assert read_pin(copy).model_copy(update={"image": None}) == before


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"name": "v:1", "digests": {}}, "image.digests: "),
        ({"name": "v:1", "digests": {"x86_64": "sha256:12"}}, "image.digests.x86_64: "),
        ({"name": "v:1", "digests": {"sparc": A}}, "image.digests.sparc"),
        ({"name": "a host/v:1", "digests": {"x86_64": A}}, "image.name: "),
        ({"name": "v", "digests": {"x86_64": A}}, "image.name: "),
        ({"digests": {"x86_64": A}}, "image.name: "),
    ],
)
def test_a_wrong_table_is_named(layout: Layout, edit: dict[str, object], said: str) -> None:
    path = layout.pins / "0.3.0.toml"
    path.write_text(tomli_w.dumps(pin_table("0.3.0", "primary", "12" * 32) | {"image": edit}))
    with pytest.raises(RigError) as caught:
        read_pin(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("v/v:1", "v/v"),
        ("v/v@" + A, "v/v"),
        ("v", "v"),
        ("127.0.0.1:5000/v/v:1", "127.0.0.1:5000/v/v"),
    ],
)
def test_the_name_without_its_tag(reference: str, name: str) -> None:
    assert repository(reference) == name
