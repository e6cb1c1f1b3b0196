"""Fabricated releases, and what a person writes about them: pins, trailers, messages."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass

PRIMARY, SECOND, THIRD = "0.3.0", "0.2.0", "0.1.0"


@dataclass(frozen=True)
class Entry:
    """One file of a release; `mode` is git's."""

    content: bytes
    mode: str = "100644"


Tree = dict[str, Entry]


def lines(stem: str, count: int) -> list[str]:
    """Lines that are all different, so that only one place fits a hunk."""
    return [f"{stem}_{at:03d} = {at}" for at in range(1, count + 1)]


def text(rows: Sequence[str]) -> Entry:
    """A file of lines."""
    return Entry(("\n".join(rows) + "\n").encode())


_BODY = ["    prepare()", "    value = load()", "    value.open()", "    value.read()"]
_BODY += ["    check(value)", "    value.close()", "    log(value)", "    store(value)"]
TWIN_DISTANCE = len(_BODY) + 4


def twins(above: int = 0) -> Entry:
    """Two functions whose bodies are equal, after `above` lines of something else."""
    first = ["def first():", *_BODY, "    return value", "", ""]
    second = ["def second():", *_BODY, "    return value"]
    return text([*lines("above", above), *first, *second])


def release_files(version: str) -> Tree:
    """The files of one fabricated release; versions differ as real ones do."""
    commit = commit_of(version)
    age = {PRIMARY: 0, SECOND: 1, THIRD: 2}.get(version, 0)
    engine = lines("engine", 80)
    del engine[0 : 3 * age]  # older releases: other line numbers, the same code
    config = lines("config", 40)
    if age:
        config[19] = "config_020 = 'as it was before'"  # context that moved between releases
    return {
        "README.md": Entry("# Fäbricated vLLM\n".encode()),
        ".gitignore": Entry(b"_version.py\n*.log\n/generated/\n"),
        "vllm/__init__.py": Entry(b""),
        "vllm/_version.py": Entry(
            f"version = '{version}'\n__commit_id__ = commit_id = 'g{commit}'\n".encode()
        ),
        "vllm/engine.py": text(engine),
        "vllm/config.py": text(config),
        "vllm/dos.py": Entry(b"one = 1\r\ntwo = 2\r\nthree = 3\r\n"),
        "vllm/no_newline.py": Entry(b"alpha = 1\nbeta = 2"),
        "vllm/a name with spaces.py": text(lines("spaced", 12)),
        "vllm/ünïcode.py": text(lines("unicode", 12)),
        "tools/run.sh": Entry(b"#!/bin/sh\necho run\n", "100755"),
        "tools/link": Entry(b"run.sh", "120000"),
        "tests/test_engine.py": Entry(b"def test_engine():\n    assert True\n"),
    }


def commit_of(version: str) -> str:
    """The short upstream commit that a fabricated release says it was made from."""
    return hashlib.sha256(version.encode()).hexdigest()[:9]


def sdist_bytes(version: str, files: Tree) -> bytes:
    """An sdist, the same bytes for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in files.items():
            info = tarfile.TarInfo(f"vllm-{version}/{path}")
            info.mtime = 1_700_000_000
            if entry.mode == "120000":
                info.type, info.linkname = tarfile.SYMTYPE, entry.content.decode()
                archive.addfile(info)
            else:
                info.size, info.mode = len(entry.content), int(entry.mode[-3:], 8)
                archive.addfile(info, io.BytesIO(entry.content))
    return gzip.compress(packed.getvalue(), mtime=0)


def pin_table(version: str, role: str, sdist_sha256: str) -> dict[str, object]:
    """The keys of a pin file."""
    wheel = {"name": f"vllm-{version}-cp38-abi3-linux_x86_64.whl", "sha256": "ab" * 32}
    return {
        "version": version,
        "role": role,
        "commit": commit_of(version),
        "python": ">=3.11",
        "torch": "2.13.0",
        "sdist": {"name": f"vllm-{version}.tar.gz", "sha256": sdist_sha256},
        "wheels": {"cuda": {"x86_64": wheel}},
    }


def trailers(number: str, **changed: str | None) -> str:
    """The trailers of a patch; a keyword (with `_` for `-`) replaces one, None drops it."""
    values: dict[str, str | None] = {
        "Rig-Number": number,
        "Upstream-Status": "Pending",
        "Removal-Plan": "when upstream has it",
        "Requires": "none",
        "Tests": "tests/test_engine.py::test_engine",
    }
    values |= {key.replace("_", "-"): value for key, value in changed.items()}
    return "\n".join(f"{key}: {value}" for key, value in values.items() if value is not None)


def message(number: str, subject: str, body: str = "Why it is so.", **changed: str | None) -> str:
    """A commit message that keeps the rules, unless the caller breaks one on purpose."""
    return f"{subject}\n\n{body}\n\n{trailers(number, **changed)}\n"
