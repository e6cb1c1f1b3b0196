"""The pages as a web site: mkdocs-material in an environment of its own, by digest.

Packages come from the index that pip is configured for. Once they are there, no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.layout import Layout
from rig.series.scratch import discard
from rig.waiting import hold

_STAMP = "rig-requirements.sha256"


def build_site(layout: Layout, config: Path | None = None, site: Path | None = None) -> Path:
    """Build the site; a link or an anchor that leads nowhere is an error.

    It is built beside its place and moved there when it is whole: a build that fails or is killed
    leaves the site before it.

    Args:
        layout: whose build/docs-env/ is used, and made if it is not there.
        config: another mkdocs.yml than the checkout's.
        site: another folder than build/site/.

    Raises:
        RigError: the packages cannot be installed, or mkdocs finds something wrong.
    """
    layout.build.mkdir(exist_ok=True)
    site = site or layout.build / "site"
    with hold(layout.build / "docs-env.lock", "waiting for another run that builds a site"):
        python = _environment(layout)
        for left in site.parent.glob(f".{site.name}-*"):  # by a killed build
            discard(left)
        # A name of its own: the mkdocs of a killed build may still write into the one before.
        aside = Path(tempfile.mkdtemp(prefix=f".{site.name}-", dir=site.parent))
        try:
            # Not --quiet: mkdocs then counts no warnings, and --strict finds nothing.
            command = [str(python), "-m", "mkdocs", "build", "--strict"]
            command += ["--site-dir", str(aside / "new")]
            command += ["--config-file", str(config or layout.root / "mkdocs.yml")]
            _run(command, layout, "the pages do not hold together")
            if site.exists():
                site.rename(aside / "old")
            (aside / "new").rename(site)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return site


def _environment(layout: Layout) -> Path:
    """The interpreter that has mkdocs."""
    folder = layout.build / "docs-env"
    python = folder / "bin" / "python"
    wanted = layout.root / "requirements" / "docs.txt"
    made_of = hashlib.sha256(wanted.read_bytes() + f"{sys.version} {folder}".encode()).hexdigest()
    stamp = folder / _STAMP
    if python.exists() and stamp.is_file() and stamp.read_text() == made_of:
        return python
    console.print("setting up mkdocs in build/docs-env (once)")
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], layout, "python -m venv failed")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    what = "what the pages are built with could not be installed"
    _run([*pip, "--require-hashes", "--requirement", str(wanted)], layout, what)
    stamp.write_text(made_of)
    return python


def _run(command: list[str], layout: Layout, what: str) -> None:
    # PYTHON* of the caller is no business of this environment; nor is an advertisement of ours.
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_USER"))}
    mine["NO_MKDOCS_2_WARNING"] = "1"
    done = subprocess.run(
        command, cwd=layout.root, env=mine, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        raise RigError(
            what,
            detail=(done.stdout + done.stderr)[-6000:],
            next_step="the lines above name page and link, or the package",
        )
