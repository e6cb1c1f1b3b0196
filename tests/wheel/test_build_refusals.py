"""Release wheels and series that a repack refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rig.wheel.build as build_module
from rig.errors import RigError
from rig.pins import Arch, Flavour
from rig.wheel.record import Row, row_of

from .wheel_fabric import CHANGES, SOURCE, Fabric, metadata_text, read

REFUSALS: list[tuple[str, Callable[[Fabric], object], list[str]]] = [
    (
        "lost member",
        lambda f: f.lost.add("vllm/empty.py"),
        ["listed in RECORD, not in the wheel: vllm/empty.py"],
    ),
    (
        "file of the source not packed",
        lambda f: f.wheel_edits.update({"vllm/empty.py": None}),
        ["missing from the wheel: vllm/empty.py"],
    ),
    (
        "unknown difference",
        lambda f: f.wheel_edits.update({"vllm/tool.sh": b"other\n"}),
        ["not the source's bytes: vllm/tool.sh"],
    ),
    (
        "difference in a file the series changes",
        lambda f: f.wheel_edits.update({"vllm/platforms/cpu.py": b"other\n"}),
        ["not the source's bytes: vllm/platforms/cpu.py"],
    ),
    (
        "added file exists",
        lambda f: f.wheel_edits.update({"vllm/rig/new.py": b"theirs\n"}),
        ["vllm/rig/new.py: the series adds it, but the wheel has its own"],
    ),
    (
        "provenance exists",
        lambda f: f.wheel_edits.update({"vllm/rig_provenance.json": b"{}"}),
        ["already has vllm/rig_provenance.json"],
    ),
    (
        "wrong size in RECORD",
        lambda f: f.record_edits.update({"vllm/empty.py": Row(row_of(b"").digest, 5)}),
        ["vllm/empty.py 5 bytes"],
    ),
    (
        "RECORD lists more",
        lambda f: f.record_edits.update({"vllm/ghost.py": row_of(b"")}),
        ["listed in RECORD, not in the wheel: vllm/ghost.py"],
    ),
    (
        "a data folder",
        lambda f: f.wheel_edits.update({"vllm-1.2.3.data/scripts/x": b""}),
        ["no .data folder"],
    ),
    (
        "two dist-info folders",
        lambda f: f.wheel_edits.update({"other-1.dist-info/METADATA": b""}),
        ["must hold one folder vllm-1.2.3.dist-info"],
    ),
    (
        "unexpected METADATA",
        lambda f: setattr(f, "metadata", "Name: other\nVersion: 1.2.3\n\n"),
        ["the field Name is not as the file name says"],
    ),
    (
        "another Requires-Python than the pin's",
        lambda f: setattr(f, "metadata", metadata_text(f.flavour).replace(">=3.10", ">=3.9")),
        ["it says Requires-Python >=3.9, the pin says >=3.10"],
    ),
    (
        "unexpected WHEEL",
        lambda f: setattr(f, "wheel_text", "Wheel-Version: 1.0\n\n"),
        ["WHEEL names no tag"],
    ),
]


@pytest.mark.parametrize(
    ("change", "says"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_a_release_wheel_that_is_not_as_it_must_be(
    fabric: Fabric, change: Callable[[Fabric], object], says: list[str]
) -> None:
    change(fabric)
    applied = fabric.series(CHANGES)
    with pytest.raises(RigError) as caught:
        fabric.build(applied)
    for text in says:
        assert text in str(caught.value)
    assert fabric.dist_files() == []


def test_a_release_wheel_cut_short_is_refused_even_with_its_digest_pinned(fabric: Fabric) -> None:
    applied = fabric.series(CHANGES)
    artifact = fabric.cached_wheel(fabric.wheel_bytes()[:-1000])
    pin = applied.pin.model_copy(update={"wheels": {Flavour.CUDA: {Arch.X86_64: artifact}}})
    with pytest.raises(RigError, match="cut short"):
        fabric.build(type(applied)(**{**vars(applied), "pin": pin}))
    assert fabric.dist_files() == []


class TestKnownDifferences:
    """A CPU wheel's own versions of some files."""

    @pytest.fixture
    def cpu(self, fabric: Fabric) -> Fabric:
        fabric.flavour = Flavour.CPU
        fabric.known_differences = ("vllm/_version.py", "vllm/platforms/__init__.py")
        version_file = SOURCE["vllm/_version.py"].replace(b"'g0123abcd9'", b"None")
        fabric.wheel_edits = {
            "vllm/platforms/__init__.py": b"KIND = 'cpu'\n",
            "vllm/_version.py": version_file,
        }
        return fabric

    def test_they_are_kept_and_the_commit_is_the_releases(self, cpu: Fabric) -> None:
        built = cpu.build(cpu.series(CHANGES))
        assert built.path.name == "vllm-1.2.3+rig.1.cpu-py3-none-any.whl"
        assert read(built.path, "vllm/platforms/__init__.py") == b"KIND = 'cpu'\n"
        assert b"commit_id = 'g0123abcd9'" in read(built.path, "vllm/_version.py")

    def test_an_unknown_one_is_refused(self, cpu: Fabric) -> None:
        cpu.wheel_edits["vllm/tool.sh"] = b"other\n"
        with pytest.raises(RigError, match=r"not the source's bytes: vllm/tool\.sh"):
            cpu.build(cpu.series(CHANGES))

    def test_one_that_is_gone_is_refused(self, cpu: Fabric) -> None:
        del cpu.wheel_edits["vllm/platforms/__init__.py"]
        with pytest.raises(RigError, match="known to differ, but equal: vllm/platforms/__init__"):
            cpu.build(cpu.series(CHANGES))

    def test_one_that_the_series_changes_is_refused(self, cpu: Fabric) -> None:
        with pytest.raises(RigError, match=r"platforms/__init__\.py: the CPU wheel has its own"):
            cpu.build(cpu.series({"vllm/platforms/__init__.py": b"KIND = 'rig'\n"}))

    def test_they_do_not_excuse_a_cuda_wheel(self, cpu: Fabric) -> None:
        cpu.flavour = Flavour.CUDA
        with pytest.raises(RigError, match="not the source's bytes: vllm/platforms/__init__"):
            cpu.build(cpu.series(CHANGES))


def test_changes_that_need_a_compiler_are_refused_before_anything_is_fetched(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = fabric.series({**CHANGES, "csrc/kernel.cu": b"// faster\n"})
    monkeypatch.setattr(build_module, "fetch", None)
    with pytest.raises(RigError, match=r"csrc/kernel\.cu") as caught:
        fabric.build(applied)
    assert "make build FROM=source" in str(caught.value)


def test_a_link_is_refused(fabric: Fabric) -> None:
    (fabric.tree / "vllm/link.py").symlink_to("old.py")
    with pytest.raises(RigError, match=r"vllm/link\.py: it is a symbolic link"):
        fabric.build(fabric.series({}))


def test_a_flavour_that_does_not_exist_names_those_that_do(fabric: Fabric) -> None:
    applied = fabric.applied()
    fabric.flavour = Flavour.CPU
    with pytest.raises(RigError, match="has no cpu wheel"):
        fabric.build(applied)
