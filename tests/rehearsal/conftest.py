"""What the tests of the engine's environment share: a checkout, a pin and small wheels."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from rig.layout import Layout
from rig.pins import Pin
from rig.wheel.provenance import PROVENANCE_PATH, Provenance, format_provenance

VERSION = "0.32.0"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root = tmp_path / "checkout"
    (root / "requirements").mkdir(parents=True)
    (root / "requirements" / f"engine-{VERSION}.in").write_text("ray==2.60.0\n")
    (root / "requirements" / f"engine-{VERSION}.txt").write_text("ray==2.60.0\ntorch==2.13.0\n")
    return Layout(root, tmp_path / "cache")


@pytest.fixture
def pin() -> Pin:
    digest = "0" * 64
    wheel = {"name": f"vllm-{VERSION}-cp38-abi3-linux_x86_64.whl", "sha256": digest}
    return Pin.model_validate(
        {
            "version": VERSION,
            "role": "secondary",
            "commit": "5df63a720",
            "python": ">=3.11",
            "torch": "2.13.0",
            "sdist": {"name": f"vllm-{VERSION}.tar.gz", "sha256": digest},
            "wheels": {"cuda": {"x86_64": wheel}},
        }
    )


def wheel_of(folder: Path, name: str, version: str) -> Path:
    """A small wheel that pip installs, with a command of its own name."""
    return _pack(folder, name, version, (), {f"{name}/__init__.py": "def main(): pass\n"})


def rig_wheel(folder: Path, revision: int, body: str = "") -> Path:
    """A small wheel that passes as a rig build of vLLM; it changes `vllm/patched.py`."""
    version = f"{VERSION}+rig.{revision}.cpu"
    patched = "x = 1\n"
    provenance = Provenance.model_validate(
        {
            "version": version,
            "release": VERSION,
            "commit": "5df63a720",
            "flavour": "cpu",
            "series": "a" * 64,
            "tree": "b" * 40,
            "patches": [],
            "files": {"vllm/patched.py": hashlib.sha256(patched.encode()).hexdigest()},
            "removed": [],
        }
    )
    content = {
        "vllm/__init__.py": body,
        "vllm/patched.py": patched,
        "vllm/plain.py": "y = 1\n",
        PROVENANCE_PATH: format_provenance(provenance).decode(),
    }
    return _pack(folder, "vllm", version, ["torch==2.13.0"], content)


def _pack(
    folder: Path, name: str, version: str, requires: Sequence[str], content: dict[str, str]
) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = content | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {r}\n" for r in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{file},{_digest(text)},{len(text)}\n" for file, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return rig_wheel(tmp_path, 1, "build = 1\n")
