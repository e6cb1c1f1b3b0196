"""Downloads: verified on every use, resumed, cached, and honest about what went wrong."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig import download
from rig.download import fetch
from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Artifact

from ..series.workshop import in_child, in_children
from .index_server import Index

NAME = "vllm-0.3.0.tar.gz"
CONTENT = bytes(range(256)) * 40_000  # 10 MB: ten chunks


@pytest.fixture
def sdist(index: Index) -> Artifact:
    """A file on the index, with its right digest."""
    index.files = {"vllm": {NAME: CONTENT}}
    return Artifact(name=NAME, sha256=hashlib.sha256(CONTENT).hexdigest())


def place(layout: Layout, artifact: Artifact) -> Path:
    return layout.downloads / artifact.sha256 / artifact.name


def part(layout: Layout, artifact: Artifact) -> Path:
    return layout.downloads / artifact.sha256 / f"{artifact.name}.part"


def files_in(folder: Path) -> list[str]:
    """What a cache holds besides lock files."""
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.name != ".lock")


def refused(layout: Layout, artifact: Artifact) -> RigError:
    with pytest.raises(RigError) as caught:
        fetch(layout, artifact)
    assert caught.value.next_step, str(caught.value)
    return caught.value


def test_fresh_then_from_the_cache(layout: Layout, index: Index, sdist: Artifact) -> None:
    path = fetch(layout, sdist)
    assert path == place(layout, sdist)
    assert path.read_bytes() == CONTENT
    asked = len(index.requests)
    assert fetch(layout, sdist) == path
    assert len(index.requests) == asked, "a cached file needs no network"
    assert files_in(layout.cache) == [NAME]


def test_offline(
    layout: Layout, index: Index, sdist: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(layout, sdist)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    assert fetch(layout, sdist).read_bytes() == CONTENT
    shutil.rmtree(layout.cache)
    error = refused(layout, sdist)
    assert "cannot be reached" in error.what
    assert files_in(layout.cache) == []


def test_a_warm_cache_may_be_read_only(
    layout: Layout, index: Index, sdist: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(layout, sdist)

    class NoLock:
        def __init__(self, path: object) -> None:
            raise PermissionError(13, "Permission denied")

    # Permissions do not stop root, so what the operating system would say is said here.
    monkeypatch.setattr(download, "FileLock", NoLock)
    assert fetch(layout, sdist).read_bytes() == CONTENT


def test_a_wrong_digest_is_refused_and_not_kept(layout: Layout, index: Index) -> None:
    index.files = {"vllm": {NAME: CONTENT}}
    artifact = Artifact(name=NAME, sha256="0" * 64)
    error = refused(layout, artifact)
    assert "does not have the pinned digest" in error.what
    assert hashlib.sha256(CONTENT).hexdigest() in str(error.where)
    assert files_in(layout.cache) == []
    assert index.file_requests() == [None], "a wrong file is not fetched again and again"


def test_an_aborted_transfer_resumes(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.cut_after = 3 << 20
    error = refused(layout, sdist)
    assert "resumes" in str(error.next_step)
    have = part(layout, sdist).stat().st_size
    assert 0 < have < len(CONTENT)
    index.cut_after = None
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert index.file_requests() == [None, f"bytes={have}-"]
    assert files_in(layout.cache) == [NAME]


def test_a_transfer_that_is_cut_many_times(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.cut_after = 3 << 20
    for _ in range(3):
        refused(layout, sdist)
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert len(index.file_requests()) == 4


def test_a_server_that_ignores_range(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.cut_after = 3 << 20
    refused(layout, sdist)
    index.cut_after, index.honours_range = None, False
    assert fetch(layout, sdist).read_bytes() == CONTENT


def test_a_killed_download_resumes(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.cut_after = 5 << 20
    assert in_child(lambda: fetch(layout, sdist)) == 1
    index.cut_after = None
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert index.file_requests()[1] is not None


@pytest.mark.parametrize("size", [1, len(CONTENT) // 2, len(CONTENT), len(CONTENT) + 7])
def test_a_damaged_part_heals(layout: Layout, index: Index, sdist: Artifact, size: int) -> None:
    bad = part(layout, sdist)
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"\xff" * size)
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert files_in(layout.cache) == [NAME]


def test_a_finished_part_is_taken(layout: Layout, index: Index, sdist: Artifact) -> None:
    done = part(layout, sdist)
    done.parent.mkdir(parents=True)
    done.write_bytes(CONTENT)
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert index.file_requests() == [f"bytes={len(CONTENT)}-"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "grow"])
def test_a_damaged_cached_file_is_fetched_again(
    layout: Layout, index: Index, sdist: Artifact, damage: str
) -> None:
    path = fetch(layout, sdist)
    bad = {
        "flip": CONTENT[:5000] + bytes([CONTENT[5000] ^ 1]) + CONTENT[5001:],
        "truncate": CONTENT[:-1],
        "empty": b"",
        "grow": CONTENT + b"x",
    }[damage]
    path.write_bytes(bad)
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert len(index.file_requests()) == 2


def test_a_compressing_server(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.compresses = True
    index.cut_after = None
    assert fetch(layout, sdist).read_bytes() == CONTENT
    # A decoded body could never be resumed: bytes of the file are asked for as they are.
    place(layout, sdist).unlink()
    part(layout, sdist).write_bytes(CONTENT[:1000])
    assert fetch(layout, sdist).read_bytes() == CONTENT
    assert index.file_requests()[1:] == ["bytes=1000-"]


def test_a_file_that_is_no_longer_listed(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.unlisted = {NAME}
    error = refused(layout, sdist)
    assert f"no longer lists {NAME}" in error.what


def test_a_project_that_is_not_there(layout: Layout, index: Index, sdist: Artifact) -> None:
    index.files = {}
    assert "no project vllm" in refused(layout, sdist).what


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_a_status_of_the_file(layout: Layout, index: Index, sdist: Artifact, status: int) -> None:
    index.file_status = status
    assert str(status) in str(refused(layout, sdist))
    assert files_in(layout.cache) == []


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_status_of_the_page(layout: Layout, index: Index, sdist: Artifact, status: int) -> None:
    index.page_status = status
    assert str(status) in str(refused(layout, sdist))


def test_credentials_of_an_index_are_not_printed(
    layout: Layout, index: Index, sdist: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("http://", "http://me:s3cret@"))
    assert fetch(layout, sdist).read_bytes() == CONTENT
    shutil.rmtree(layout.cache)
    index.page_status = 500
    assert "s3cret" not in str(refused(layout, sdist))


@pytest.mark.parametrize("kind", ["text/plain", "application/json; nonsense", "text/html"])
def test_a_page_that_is_no_index_page(
    layout: Layout, index: Index, sdist: Artifact, kind: str
) -> None:
    index.page_type = kind  # what a portal or a wrong address answers
    refused(layout, sdist)


@pytest.mark.parametrize("url", ["not an address", "ftp://127.0.0.1/simple", "http://"])
def test_a_wrong_index_address(
    layout: Layout, sdist: Artifact, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", url)
    refused(layout, sdist)


def test_a_server_that_never_answers(
    layout: Layout, index: Index, sdist: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_TIMEOUT_SECONDS", (0.5, 0.5))
    index.stall = True
    error = refused(layout, sdist)
    assert "Timeout" in str(error) or "cannot be reached" in error.what


def test_two_processes_at_once(layout: Layout, index: Index, sdist: Artifact) -> None:
    assert in_children(*[lambda: fetch(layout, sdist)] * 3) == [0, 0, 0]
    assert place(layout, sdist).read_bytes() == CONTENT
    assert index.file_requests() == [None], "the others take what the first one fetched"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder],
            check=False,
            capture_output=True,
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk(layout: Layout, index: Index, sdist: Artifact, small_disk: Path) -> None:
    full = Layout(root=layout.root, cache=small_disk)
    error = refused(full, sdist)
    assert "No space left on device" in error.what
    assert "VLLM_RIG_CACHE" in str(error.next_step)
    assert not place(full, sdist).exists()


def test_a_cache_that_is_a_file(layout: Layout, sdist: Artifact) -> None:
    layout.cache.write_text("in the way")
    assert "cannot write the download" in refused(layout, sdist).what
