"""The pinned releases' real wheels, with a made-up series of three files."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from rig.download import fetch
from rig.git import Git
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Arch, Flavour, find_pin
from rig.series.applied import AppliedPatch, AppliedTree, changed_files
from rig.series.pristine import PRISTINE_REF
from rig.wheel.build import build_wheel
from rig.wheel.inspect import inspect_wheel

pytestmark = pytest.mark.network

AUTHOR = {"GIT_AUTHOR_NAME": "A Name", "GIT_AUTHOR_EMAIL": "a@example.org"}


def applied_tree(layout: Layout, version: str, folder: Path) -> AppliedTree:
    """The package of a release, as a git tree, with three files changed."""
    pin = find_pin(layout, version)
    folder.mkdir()
    with tarfile.open(fetch(layout, pin.sdist)) as archive:
        members = [m for m in archive if m.name.startswith(f"vllm-{version}/vllm/")]
        for member in members:
            member.name = member.name.removeprefix(f"vllm-{version}/")
        archive.extractall(folder, members, filter="data")
    git = Git(folder)
    git.run("init", "-q")

    def commit() -> None:
        git.run("-c", "core.looseCompression=0", "add", "-A", "-f")
        git.run("commit", "-q", "-m", "x", env=AUTHOR)

    commit()
    git.run("update-ref", PRISTINE_REF, "HEAD")
    with (folder / "vllm/platforms/cpu.py").open("ab") as file:
        file.write(b"\n# rig\n")
    (folder / "vllm/rig_made_up.py").write_text("MADE_UP = True\n")
    (folder / "vllm/version.py").unlink()
    commit()
    patch = AppliedPatch("0101", "0101-made-up.patch", "Made up", "0" * 64)
    tree = git.tree_id()
    return AppliedTree(folder, pin, tree, (patch,), "1" * 64, changed_files(git))


@pytest.mark.parametrize(
    ("version", "flavour"), [("0.33.0", Flavour.CUDA), ("0.32.0", Flavour.CPU)]
)
def test_a_release_wheel_with_three_changes(tmp_path: Path, version: str, flavour: Flavour) -> None:
    layout = layout_of_this_checkout()
    applied = applied_tree(layout, version, tmp_path / "tree")
    built = build_wheel(
        layout, applied, flavour, Arch.X86_64, 3, out_folder=tmp_path / "an output folder"
    )
    again = build_wheel(layout, applied, flavour, Arch.X86_64, 3, out_folder=tmp_path / "other")
    assert again.sha256 == built.sha256
    # Two seconds on an idle machine with two cores; this bound only finds a repack that packs
    # again, which takes minutes.
    assert min(built.seconds, again.seconds) < 15
    report = inspect_wheel(built.path, full=True)
    tag = "cp38-abi3-manylinux_2_28_x86_64"
    suffix = ".cpu" if flavour is Flavour.CPU else ""
    assert built.path.name == f"vllm-{version}+rig.3{suffix}-{tag}.whl"
    release = fetch(layout, applied.pin.wheel(flavour, Arch.X86_64))
    with zipfile.ZipFile(release) as old, zipfile.ZipFile(built.path) as new:
        assert report.members == len(old.namelist()) + 1  # one more, one less, the provenance
        assert new.read("vllm/rig_made_up.py") == b"MADE_UP = True\n"
        assert new.read("vllm/platforms/cpu.py").endswith(b"\n# rig\n")
        assert "vllm/version.py" not in new.namelist()
        values: dict[str, object] = {}
        exec(new.read("vllm/_version.py"), values)
    numbers = tuple(int(n) for n in version.split("."))
    assert values["version"] == built.version
    assert values["version_tuple"] == (*numbers, f"rig.3{suffix}")
    assert values["commit_id"] == f"g{applied.pin.commit}"
