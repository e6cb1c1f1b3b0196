"""Blocks of the pages that need no card and no network are run, page by page, as they stand."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .blocks import blocks_of, lines_to_run, row_of_run
from .commands import Command, what_is_wrong
from .foreign import releases
from .pages import PAGES, ROOT, name_of

BY_PAGE = {
    page: lines
    for page in PAGES
    if (lines := [n for code in blocks_of(page) if row_of_run(code) for n in lines_to_run(code)])
}


class Place:
    """A home and a checkout of its own: nothing of the real ones can be changed."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.checkout = folder / "checkout"
        self.home.mkdir()
        self.checkout.mkdir()
        for name in ("docker", "scripts", "patches"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.checkout / name, ignore=ignored)

    def run(self, text: str) -> str:
        """Run lines with bash; what they said."""
        bare = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_"))}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.checkout,
            env={**bare, "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def _with_release(place: Place) -> None:
    """A folder of a release, its files here as a download has them, and a signer's key."""
    wheel = f"vllm-{next(iter(releases().values()))}-py3-none-any.whl"
    folder = place.checkout / "dist" / "release-1"
    folder.mkdir(parents=True)
    (folder / wheel).write_bytes(b"a wheel")
    sums = f"{hashlib.sha256(b'a wheel').hexdigest()}  {wheel}\n{'0' * 64}  not-downloaded.whl\n"
    (folder / "SHA256SUMS").write_text(sums)
    shutil.copy(folder / wheel, place.checkout)
    shutil.copy(folder / "SHA256SUMS", place.checkout)
    place.run("mkdir -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    place.run('printf "maintainer %s\\n" "$(cat ~/.ssh/id_ed25519.pub)" >signers')


def _with_engine(place: Place) -> None:
    """An environment for the engine, and what install.md has beside it."""
    folder = place.home / "engine-cpu"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    _with_release(place)


def _nothing(place: Place) -> None:
    pass


BEFORE: dict[str, Callable[[Place], None]] = {
    "docs/install.md": _with_engine,
    "docs/releasing.md": _with_release,
}


def _after_images(place: Place, said: str) -> None:
    docker = place.checkout / "docker"
    assert (docker / ".env").read_bytes() == (ROOT / "docker" / ".env.example").read_bytes()


def _after_install(place: Place, said: str) -> None:
    assert ".whl: OK" in said
    loaded = "import sys; print('rig_torchvision_shim' in sys.modules)"
    assert place.run(f'~/engine-cpu/bin/python -c "{loaded}"') == "True\n"  # and no complaint


def _after_releasing(place: Place, said: str) -> None:
    assert (ROOT / "patches" / "revision").read_text() in said
    assert said.count(".whl: OK") == 2
    assert 'Good "vllm-rig-release" signature for maintainer' in said
    digest = hashlib.sha256((place.checkout / "SHA256SUMS").read_bytes()).hexdigest()
    assert f"{digest}  SHA256SUMS" in said


def _after_rig_files(place: Place, said: str) -> None:
    given = (ROOT / "scripts" / "rigs" / "4x3090.toml").read_bytes()
    assert (place.checkout / "my-box.toml").read_bytes() == given


def _after_supervision(place: Place, said: str) -> None:
    """The unit finds what it needs: each name of the file is one that it uses, and is right."""
    unit = place.home / ".config" / "systemd" / "user" / "vllm-rig@.service"
    asked = set(re.findall(r"\$\{(RIG_\w+)(:-)?", unit.read_text()))
    file = place.home / ".config" / "vllm-rig" / "main.env"
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"EnvironmentFile=%E/{file.parent.name}/%i.env" in unit.read_text()
    given = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert {name for name, default in asked if not default} == {*given} - {"RIG_NAME"}
    assert set(given) <= {name for name, _ in asked}
    assert (Path(given["RIG_CHECKOUT"]) / "scripts" / "serve.sh").is_file()
    assert (ROOT / "scripts" / "rigs" / f"{given['RIG_NAME']}.toml").is_file()
    words = ("scripts/serve.sh", given["RIG_MODEL"], *given["RIG_ARGUMENTS"].split())
    said_wrong, left_to_vllm = what_is_wrong(Command("", words, inline=False))
    assert said_wrong == "" and left_to_vllm == ["--max-model-len"]


AFTER: dict[str, Callable[[Place, str], None]] = {
    "docs/images.md": _after_images,
    "docs/install.md": _after_install,
    "docs/releasing.md": _after_releasing,
    "docs/rig-files.md": _after_rig_files,
    "docs/supervision.md": _after_supervision,
}


def test_each_page_that_is_run_is_looked_at_after() -> None:
    assert {name_of(page) for page in BY_PAGE} == set(AFTER)
    assert sum(len(lines) for lines in BY_PAGE.values()) >= 15


@pytest.mark.parametrize("page", BY_PAGE, ids=name_of)
def test_the_blocks_of_a_page_do_what_they_say(page: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    BEFORE.get(name_of(page), _nothing)(place)
    AFTER[name_of(page)](place, place.run("\n".join(BY_PAGE[page])))
