"""The signature that docs/releasing.md describes, by its own commands, with a key made here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .shop import Shop

PAGE = Path(__file__).resolve().parents[2] / "docs" / "releasing.md"
NAME = "maintainer"

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"
)


def documented(start: str) -> str:
    """The page's one command line that begins so."""
    (line,) = [n.strip() for n in PAGE.read_text().splitlines() if n.strip().startswith(start)]
    return line


def key(folder: Path, name: str) -> Path:
    path = folder / name
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(make, check=True)
    return path


def run(line: str, folder: Path, home: Path) -> int:
    """Run a documented line as a person's shell does, with a home of the test's own."""
    env = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=env, capture_output=True, check=False
    )
    return done.returncode


def test_a_signed_release_is_told_from_a_changed_and_from_a_foreign_one(
    shop: Shop, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    own = key(home / ".ssh", "id_ed25519")
    shop.release()
    folder = shop.out()
    sign, verify = documented("ssh-keygen -Y sign"), documented("ssh-keygen -Y verify")
    check = documented("sha256sum --check --strict")
    assert run(sign, folder, home) == 0
    signers = folder / "signers"
    signers.write_text(f"{NAME} {own.with_suffix('.pub').read_text()}")
    assert run(verify, folder, home) == 0
    assert run(check, folder, home) == 0

    other = key(tmp_path, "other")
    signers.write_text(f"{NAME} {other.with_suffix('.pub').read_text()}")
    assert run(verify, folder, home) != 0, "somebody else's key passed"

    signers.write_text(f"{NAME} {own.with_suffix('.pub').read_text()}")
    wheel = next(folder.glob("*.provenance.json"))
    wheel.write_bytes(wheel.read_bytes() + b" ")
    assert run(check, folder, home) != 0, "a changed file passed"
    sums = folder / "SHA256SUMS"
    sums.write_bytes(sums.read_bytes().replace(b"0", b"1", 1))
    assert run(verify, folder, home) != 0, "changed sums passed"
