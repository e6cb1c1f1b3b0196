"""A release that is killed, has no room, may not write, or is made under other settings."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.errors import RigError
from tests.series.workshop import SCRIPTS, run_git

from .shop import Shop

VERSION = "0.3.0+rig.1"

_RELEASE = """
import os, signal, sys
from pathlib import Path
from rig.layout import Layout
from rig.pins import Arch
from rig.release.command import release

root, cache, event, ending = sys.argv[1:]

def hook(name, arguments):
    # The interpreter tells of each file before it is opened, renamed or removed.
    if name == event and str(arguments[0]).endswith(ending):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
release(Layout(root=Path(root), cache=Path(cache)), ["all"], Arch.X86_64, require_quilt=False)
"""
HALF = ("open", ".cpu-cp38-abi3-manylinux_2_28_x86_64.whl.cdx.json")
BETWEEN = ("os.rename", f".release-{VERSION}.part")
POINTS = [
    HALF,
    ("os.rename", f"/release-{VERSION}"),
    BETWEEN,
    ("shutil.rmtree", f".release-{VERSION}.old"),
]


def process(
    shop: Shop, event: str = "", ending: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Release all in a process of its own, without a network; it is killed at an event."""
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple/"}
    return subprocess.run(
        [sys.executable, "-c", _RELEASE, str(shop.root), str(shop.cache), event, ending],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), **nowhere, **settings},
        capture_output=True, check=False, text=True,
    )  # fmt: skip


def killed_at(shop: Shop, event: str, ending: str) -> None:
    run = process(shop, event, ending)
    assert run.returncode == -signal.SIGKILL, run.stderr


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def leftovers(shop: Shop) -> list[str]:
    return [p.name for p in shop.layout.dist.glob(".release*")]


@pytest.mark.parametrize(("event", "ending"), POINTS)
def test_a_kill_leaves_one_whole_release_and_the_next_run_makes_the_new_one(
    shop: Shop, event: str, ending: str
) -> None:
    shop.release("0.2.0:cpu")
    old = shop.files()
    shop.save("Onwards")
    killed_at(shop, event, ending)
    aside = shop.layout.dist / f".release-{VERSION}.old"
    whole = [content(f) for f in (shop.out(), aside) if f.exists()]
    assert old in whole
    made = shop.release("all")
    assert {n: hashlib.sha256(d).hexdigest() for n, d in shop.files().items()} == made.digests
    assert len(made.digests) == 4 + 3 * 3
    assert leftovers(shop) == []


def test_after_a_kill_a_run_that_fails_puts_the_old_release_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.release("0.2.0:cpu")
    old = shop.files()
    killed_at(shop, *BETWEEN)
    assert not shop.out().exists()

    def fails(*_: object, **__: object) -> None:
        raise RigError("no such luck")

    monkeypatch.setattr("rig.release.command.build_wheel", fails)
    with pytest.raises(RigError, match="no such luck"):
        shop.release("all")
    assert shop.files() == old
    assert leftovers(shop) == []


def test_what_a_killed_run_for_another_revision_left_goes_too(shop: Shop) -> None:
    killed_at(shop, *HALF)
    shop.revision(2)
    shop.release()
    assert sorted(p.name for p in shop.layout.dist.iterdir()) == ["release-0.3.0+rig.2"]


def test_a_new_folder_that_cannot_come_to_its_place_leaves_the_old_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.release()
    old, rename = shop.files(), Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name.endswith(".part") and path.is_dir():
            raise OSError(5, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RigError, match="cannot write the release: Input/output error"):
        shop.release("all")
    assert shop.files() == old
    assert leftovers(shop) == []


@pytest.fixture
def mounted(shop: Shop) -> Iterator[str]:
    """`dist/` as a file system of its own, of 16 MiB."""
    shop.layout.dist.mkdir(exist_ok=True)
    place = str(shop.layout.dist)
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_said_and_leaves_nothing(shop: Shop, mounted: str) -> None:
    (Path(mounted) / "filler").write_bytes(b"x" * ((16 << 20) - (16 << 10)))  # 16 KiB are free
    with pytest.raises(RigError, match="No space left on device") as caught:
        shop.release("all")
    assert mounted in str(caught.value)
    assert [p.name for p in Path(mounted).iterdir()] == ["filler"]
    (Path(mounted) / "filler").unlink()
    shop.release("all")


def test_a_dist_that_may_only_be_read_is_said(shop: Shop, mounted: str) -> None:
    shop.release()
    old = shop.files()
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    with pytest.raises(RigError, match="cannot write the release: Read-only file system"):
        shop.release("all")
    assert shop.files() == old
    subprocess.run(["mount", "-o", "remount,rw", mounted], check=True)
    shop.release("all")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_dist_of_somebody_else_is_said(shop: Shop) -> None:
    shop.release()
    old = shop.files()
    shop.layout.dist.chmod(0o555)
    try:
        with pytest.raises(RigError, match="cannot write the release: Permission denied"):
            shop.release("all")
    finally:
        shop.layout.dist.chmod(0o755)
    assert shop.files() == old


def test_the_settings_of_whoever_makes_it_are_not_in_it(shop: Shop, tmp_path: Path) -> None:
    """Nor does it need a network when the cache is warm."""
    found = {}
    for name, settings, mask in [
        ("plain", {"TZ": "UTC", "LANG": "C.UTF-8"}, 0o022),
        ("odd", {"TZ": "Asia/Kathmandu", "LANG": "C", "LC_ALL": "C"}, 0o077),
        ("older", {"SOURCE_DATE_EPOCH": "86400", "TZ": "America/St_Johns"}, 0o002),
    ]:
        clone = shop.clone(tmp_path / name)
        before = os.umask(mask)
        try:
            run = process(clone, **settings)
        finally:
            os.umask(before)
        assert run.returncode == 0, run.stderr
        found[name] = {n: hashlib.sha256(d).hexdigest() for n, d in clone.files().items()}
        assert len(found[name]) == 4 + 3 * 3
    assert found["odd"] == found["plain"] == found["older"]


def test_a_shallow_clone_is_refused_until_it_is_whole(shop: Shop, tmp_path: Path) -> None:
    shop.tag("v0.3.0+rig.1")
    shop.revision(2)
    run_git(tmp_path, "clone", "--quiet", "--depth=1", shop.root.as_uri(), "thin/checkout")
    thin = Shop.__new__(Shop)
    thin.attach(tmp_path / "thin", shop.cache)
    with pytest.raises(RigError, match="shallow"):
        thin.release()
    run_git(thin.root, "fetch", "--quiet", "--unshallow", "--tags")
    thin.release()
    shop.release()
    assert thin.files("0.3.0+rig.2") == shop.files("0.3.0+rig.2")


def test_more_tags_at_one_commit(shop: Shop) -> None:
    """Only a number that is used twice is in the way; a later one is not what came before."""
    shop.tag("v0.3.0+rig.1")
    shop.tag("a-name-of-mine", annotated=False)
    shop.tag("v0.3.0+rig.2")
    assert shop.release().point.previous is None
    shop.tag("v0.2.0+rig.1", annotated=False)
    with pytest.raises(RigError, match=r"revision 1 was used: v0\.2\.0\+rig\.1"):
        shop.release()
