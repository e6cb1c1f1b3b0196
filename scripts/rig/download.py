"""Verified, resumable downloads into the user's cache.

A file lies at `downloads/<sha256>/<name>` and is hashed again on every use: a cache that went
bad is found before it is used, not after.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from filelock import FileLock
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pypi_simple import NoSuchProjectError, ProjectPage, PyPISimple, UnsupportedRepoVersionError
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from rig.console import console
from rig.errors import RigError, first_line_of_os_error
from rig.layout import Layout
from rig.pins import Artifact

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = (15, 60)


def index_client() -> PyPISimple:
    """A client of the package index that pip would use (PIP_INDEX_URL, else the default)."""
    endpoint = os.environ.get("PIP_INDEX_URL")
    return PyPISimple(endpoint) if endpoint else PyPISimple()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def project_of(filename: str) -> str:
    """The index project that a wheel or sdist belongs to."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[0]
        return parse_sdist_filename(filename)[0]
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        raise RigError(f"not a wheel or sdist name: {filename}") from error


def fetch(layout: Layout, artifact: Artifact) -> Path:
    """The path of a release file whose digest was just verified; downloads it when needed.

    Raises:
        RigError: no network and not cached, not on the index, wrong digest, no space.
    """
    folder = layout.downloads / artifact.sha256
    target = folder / artifact.name
    try:
        # Without the lock first: a file comes to its place in one step, and a warm cache may be
        # read-only.
        if _is_right(target, artifact):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if target.is_file():
                if _is_right(target, artifact):
                    return target
                console.print(f"cache: {artifact.name} does not match its digest, fetching again")
                target.unlink()
            part = folder / f"{artifact.name}.part"
            _download(artifact, part)
            part.replace(target)
    except OSError as error:
        if isinstance(error, requests.RequestException):
            raise _network_error(artifact, error) from error
        raise RigError(
            f"cannot write the download: {first_line_of_os_error(error)}",
            where=folder,
            next_step="free some space, or name another cache folder in VLLM_RIG_CACHE",
        ) from error
    return target


def _is_right(path: Path, artifact: Artifact) -> bool:
    return path.is_file() and sha256_of(path) == artifact.sha256


def _network_error(artifact: Artifact, error: requests.RequestException) -> RigError:
    return RigError(
        f"{artifact.name} is not in the cache and {what_the_index_did(error)}",
        where=type(error).__name__,
        next_step="connect once and run the same command again; an interrupted download resumes",
    )


def what_the_index_did(error: requests.RequestException) -> str:
    """Say in words why a request failed; without its address, which may hold a password."""
    if error.response is not None:
        return f"the package index answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the package index broke the connection off"
    if isinstance(error, requests.Timeout):
        return "the package index does not answer"
    if isinstance(error, ValueError):
        return "PIP_INDEX_URL is not an address"
    return "the package index cannot be reached"


def project_page(client: PyPISimple, project: str) -> ProjectPage:
    """The files of a project.

    Raises:
        NoSuchProjectError: the index does not have it.
        RigError: what the index says is no project page.
        requests.RequestException: the index cannot be reached.
    """
    try:
        return client.get_project_page(project, timeout=_TIMEOUT_SECONDS)
    except (requests.RequestException, ValueError, UnsupportedRepoVersionError) as error:
        is_answer = isinstance(error, requests.exceptions.JSONDecodeError)
        if isinstance(error, requests.RequestException) and not is_answer:
            raise
        raise RigError(
            "the package index does not answer as an index does",
            where=type(error).__name__,
            next_step="see what PIP_INDEX_URL names, and whether a login page is in between",
        ) from error


def _download(artifact: Artifact, part: Path) -> None:
    """Download into `part`, resuming what is there, and verify; leaves no wrong file behind."""
    project = project_of(artifact.name)
    with index_client() as client:
        try:
            page = project_page(client, project)
        except NoSuchProjectError as error:
            raise RigError(
                f"the package index has no project {project}",
                where=artifact.name,
                next_step="see what PIP_INDEX_URL names: a mirror may hold less than the index",
            ) from error
        url = next((p.url for p in page.packages if p.filename == artifact.name), None)
        if url is None:
            raise RigError(
                f"the package index no longer lists {artifact.name}",
                where=project,
                next_step="the release may have been withdrawn: see the project's own notice",
            )
        resumed = part.is_file() and part.stat().st_size > 0
        _transfer(client.s, url, part, artifact.name)
        if sha256_of(part) != artifact.sha256 and resumed:
            # What was there to resume from may have been bad: once more from nothing.
            part.unlink()
            _transfer(client.s, url, part, artifact.name)
    found = sha256_of(part)
    if found != artifact.sha256:
        part.unlink()
        raise RigError(
            f"{artifact.name} does not have the pinned digest",
            where=f"pinned {artifact.sha256}, downloaded {found}",
            next_step="do not use it; if the release was replaced on purpose, change the pin "
            "in a commit that says why",
        )


def _transfer(session: requests.Session, url: str, part: Path, name: str) -> None:
    have = part.stat().st_size if part.is_file() else 0
    # The file's own bytes: what a server compressed on the way could not be resumed.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.get(url, stream=True, headers=headers, timeout=_TIMEOUT_SECONDS) as reply:
        if reply.status_code == 416:  # nothing left to send: the digest decides
            return
        reply.raise_for_status()
        append = reply.status_code == 206
        total = int(reply.headers.get("Content-Length", 0)) + (have if append else 0)
        with part.open("ab" if append else "wb") as file, _progress(name, total) as advance:
            if append:
                advance(have)
            for chunk in reply.iter_content(_CHUNK):
                file.write(chunk)
                advance(len(chunk))


class _Advance:
    def __init__(self, progress: Progress, total: int, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total or None)

    def __call__(self, size: int) -> None:
        self._progress.advance(self._task, size)


@contextmanager
def _progress(name: str, total: int) -> Iterator[_Advance]:
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    if not console.is_terminal:
        console.print(f"downloading {name} ({total / 1e6:.0f} MB)")
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield _Advance(progress, total, name)
