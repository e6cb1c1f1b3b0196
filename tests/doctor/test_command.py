"""`rig doctor` as it is typed: exit codes, JSON, wrong usage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import rig.cli_doctor  # noqa: F401  (its command joins those of rig.cli)
from rig.box.facts import Box
from rig.cli import app
from rig.doctor.engine_says import status_after
from rig.engine_log import EngineFacts, Failure, NoOp
from tests.doctor.kit import NO_DRIVER, box, card

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `rig doctor` on a given box, with no engine and no stored verdict in reach."""
    monkeypatch.setenv("VLLM_RIG_PYTHON", "/bin/false")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def run_on(seen: Box, *arguments: str, typed: str | None = None) -> Result:
        monkeypatch.setattr("rig.box.read.read_box", lambda: seen)
        return CliRunner().invoke(app, ["doctor", *arguments], input=typed)

    return run_on


def test_nothing_failed_is_0_and_unknowns_are_counted(run: Run) -> None:
    done = run(box())
    assert done.exit_code == 0, done.output
    last = done.stdout.splitlines()[-1]
    assert "0 fail" in last and " unknown" in last and "0 unknown" not in last


def test_a_failure_is_1(run: Run) -> None:
    done = run(box(tmp_free_bytes=0))
    assert done.exit_code == 1
    assert "FAIL      host, tmp-space: 0 MiB free" in done.stdout


def test_a_rig_file_is_judged_against(run: Run) -> None:
    done = run(box(), "--rig", "4x3090")
    assert done.exit_code == 1
    assert "cards-enough: 2 of 4" in done.stdout
    assert "the rig file says 4 cards, the box has 2" in done.stdout
    assert run(box(), "--rig", "2x3090").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rig", "4x3091"), "4x3090"),
        (("--rig", "no/such.toml"), "no/such.toml"),
        (("--from", "no-such-file"), "no-such-file"),
        (("--from", "a", "--after", "b"), "two questions"),
        (("--after", "no-such-log"), "no-such-log"),
        (("--cards", "-1"), "--cards"),
        (("--bogus",), "--bogus"),
    ],
)
def test_wrong_usage_is_2(run: Run, arguments: tuple[str, ...], says: str) -> None:
    done = run(box(), *arguments)
    assert done.exit_code == 2
    assert says in done.output


def test_a_box_without_a_driver(run: Run) -> None:
    """Nobody expected one: unknown. A rig file or `auto` expects cards: a failure."""
    assert run(NO_DRIVER).exit_code == 0
    for name in ("2x3090", "auto"):
        done = run(NO_DRIVER, "--rig", name)
        assert done.exit_code == 1
        assert "FAIL      cards, cards-seen: no NVIDIA driver answers" in done.stdout
    assert run(NO_DRIVER, "--cards", "0").exit_code == 0


def test_auto_makes_a_rig_of_the_box_itself(run: Run) -> None:
    done = run(box(), "--rig", "auto")
    assert done.exit_code == 0, done.stdout
    assert "the box is what rig" in done.stdout


def test_pinned_memory_is_judged(run: Run) -> None:
    assert run(box(), "--pinned-gib", "4").exit_code == 0
    done = run(box(), "--pinned-gib", "200")
    assert done.exit_code == 1 and "200.0 GiB will be page-locked" in done.stdout


def test_json_is_one_object(run: Run) -> None:
    done = run(box(card(0, persistence=False), card(1)), "--json")
    told = json.loads(done.stdout)
    assert told["findings"][0]["state"] == "warn"
    assert told["counts"]["fail"] == 0


def test_the_list_needs_no_box(run: Run) -> None:
    done = run(box(), "--list")
    assert done.exit_code == 0 and done.stdout.startswith("| check | looks at |")


def test_the_log_of_an_engine(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("INFO 11-30 01:00:00 [kv_cache_utils.py:1] nothing of note\n")
    done = run(box(), "--after", str(log))
    assert done.exit_code == 0 and "not said" in done.stdout
    rows = json.loads(run(box(), "--after", str(log), "--json").stdout)["rows"]
    assert ["engine", "not said"] in rows


def test_a_file_that_is_no_log_is_not_called_well(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("Mon Nov 30 07:00:00 UTC 2026\n")
    done = run(box(), "--after", str(tmp_path / "other.log"))
    assert done.exit_code == 2
    assert "no line of this file is one of an engine's log" in done.output
    assert "engine.log" in done.output


PASTE = """$ nvidia-smi
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0  On |                  N/A |
| 40%   36C    P8             22W /  350W |     310MiB /  24576MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
$ df -h /dev/shm
Filesystem      Size  Used Avail Use% Mounted on
shm              64M     0   64M   0% /dev/shm
"""


@pytest.mark.parametrize("way", ["file", "-"])
def test_a_pasted_text_is_judged_by_itself(run: Run, tmp_path: Path, way: str) -> None:
    """An old driver and a container's /dev/shm fail, what the text does not show is unknown."""
    (tmp_path / "paste.txt").write_text(PASTE)
    where = way if way == "-" else str(tmp_path / "paste.txt")
    done = run(box(), "--from", where, "--json", typed=PASTE)
    assert done.exit_code == 1, done.output
    states = {f["check"]: f["state"] for f in json.loads(done.stdout)["findings"]}
    assert {name for name, state in states.items() if state == "fail"} == {
        *("driver-cuda", "driver-branch", "shm"),
    }
    assert states["card-display"] == states["persistence"] == "warn"
    for name in ("link-width", "host-memory", "ports", "engine-ray", "wsl", "ray-running"):
        assert states[name] == "unknown"


def test_a_text_that_shows_nothing_passes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"\xff\x00 nothing\n")
    done = run(box(), "--from", str(tmp_path / "empty.txt"))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].endswith(" unknown, 0 pass")


def test_an_engine_that_died_or_that_ignores_a_request_is_1() -> None:
    died = Failure(cause="out of memory", next_step="less", line="a line")
    maybe = died.model_copy(update={"certain": False})
    ignored = NoOp(name="--cpu-offload-gb", why="0 bytes were offloaded")
    assert status_after(EngineFacts(source="x")) == 0
    assert status_after(EngineFacts(source="x", failure=maybe)) == 0
    assert status_after(EngineFacts(source="x", failure=died)) == 1
    assert status_after(EngineFacts(source="x", no_ops=(ignored,))) == 1


def _typed(arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `rig doctor` as a shell does, in its own process."""
    told = {**os.environ, "VLLM_RIG_PYTHON": "/bin/false", **environment}
    return subprocess.run(
        ["/bin/bash", "-c", f'set -o pipefail; "{sys.executable}" -m rig doctor {arguments}'],
        env=told,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    text = tmp_path / "paste.txt"
    name = "GA102 [GeForce RTX 3090 \u20ac]"
    text.write_text(f"0a:00.0 VGA compatible controller: NVIDIA Corporation {name} (rev a1)\n")
    return text


def test_a_reader_that_has_enough_is_no_failed_check(odd: Path) -> None:
    """`| head` closes the pipe; exit code 1 would say that a check failed."""
    done = _typed(f"--from {odd} | (exec <&-; sleep 2)")
    assert (done.returncode, done.stderr) == (0, b"")
    done = _typed(f"--json --from {odd} | head -c 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_findings_that_cannot_be_written_are_not_a_failed_check(odd: Path) -> None:
    done = _typed(f"--from {odd} > /dev/full")
    assert done.returncode == 2
    assert b"cannot be written: No space left" in done.stderr
    assert b"Traceback" not in done.stderr and b"ignored" not in done.stderr


def test_a_terminal_without_utf8_shows_what_it_can(odd: Path) -> None:
    done = _typed(f"--from {odd}", PYTHONIOENCODING="ascii", COLUMNS="20", TERM="dumb")
    assert done.returncode == 0, done.stderr
    assert b"RTX 3090 \\u20ac\n" in done.stdout
