"""tests/towers/, in the environment of an engine: the tools' own Python has no vLLM."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rig.layout import layout_of_this_checkout

from .conftest import Stage

pytestmark = pytest.mark.engine

FEWEST = 500
"""There are more; fewer have lost some on the way."""
TIMEOUT_SECONDS = 1200


@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_towers_stream_bit_for_bit(stage: Stage, tmp_path: Path) -> None:
    root = layout_of_this_checkout().root
    log, report = tmp_path / "log", tmp_path / "report.xml"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHON"))}
    # vLLM counts where its users run; a test run is none of them.
    env |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root)}
    command = [
        *(str(stage.environment.python), "-B", "-P", "-m", "pytest", "-q", "--tb=short"),
        *("-p", "no:cacheprovider", f"--junitxml={report}", str(root / "tests" / "towers")),
    ]
    status: int | str
    with log.open("wb") as file:
        try:
            status = subprocess.run(
                command,
                cwd=tmp_path,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"ended after {TIMEOUT_SECONDS} s"
    said = log.read_text("utf-8", "replace")
    assert report.is_file(), f"{status}\n{said}"
    results = Counter(
        next((kind for kind in ("error", "failure", "skipped") if c.find(kind) is not None), "pass")
        for c in ElementTree.parse(report).iter("testcase")
    )
    assert status == 0 and set(results) == {"pass"}, f"{status}: {dict(results)}\n{said}"
    assert results["pass"] >= FEWEST, said
