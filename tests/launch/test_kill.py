"""Whoever is killed, and whenever: nothing is left, at once or after the next launch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.launch.plan import ServeOptions
from rig.launch.processes import read_process
from rig.launch.runs import RunState, recover_stale_runs

from .checks import alive

LAUNCHER = Path(__file__).with_name("launcher.py")
SCRIPTS = Path(__file__).parents[2] / "scripts"
STAGES = {"ray": "Ray 2.60.0: starting", "loading": "loading", "serving": "SERVING"}


def launch(options: ServeOptions, stage: str) -> subprocess.Popen[str]:
    """A launcher that has come as far as the stage."""
    launcher = subprocess.Popen(
        [sys.executable, LAUNCHER, options.log_folder, options.python],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
    )
    assert launcher.stdout is not None
    for line in launcher.stdout:
        if line.startswith(STAGES[stage]):
            break
    else:
        pytest.fail(f"the launcher never came to {stage}")
    return launcher


def state_of_run(runtime: Path, processes: int) -> RunState:
    """The state on disk once it knows this many processes."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for file in runtime.glob("*/state.json"):
            state = RunState.from_json(file.read_text())
            if len(state.processes) >= processes:
                return state
        time.sleep(0.05)
    pytest.fail(f"no run with {processes} processes was recorded")


def wait_until_gone(runtime: Path) -> None:
    deadline = time.monotonic() + 15
    while list(runtime.iterdir()):
        assert time.monotonic() < deadline, list(runtime.rglob("*"))
        time.sleep(0.05)


@pytest.mark.parametrize(
    "stage, number, processes",
    [
        ("ray", signal.SIGTERM, 2),
        ("ray", signal.SIGKILL, 2),
        ("loading", signal.SIGINT, 5),
        ("loading", signal.SIGKILL, 5),
        ("serving", signal.SIGTERM, 5),
        ("serving", signal.SIGHUP, 5),
        ("serving", signal.SIGKILL, 5),
    ],
)
def test_a_launcher_that_is_told_or_killed(
    options: ServeOptions,
    runtime: Path,
    seen: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    number: signal.Signals,
    processes: int,
) -> None:
    monkeypatch.setenv("FAKE_RAY", "slow" if stage == "ray" else "")
    monkeypatch.setenv("FAKE_VLLM", "hang leak" if stage == "loading" else "stubborn leak")
    launcher = launch(options, stage)
    state = state_of_run(runtime, processes)
    launcher.send_signal(number)
    said, _ = launcher.communicate(timeout=30)
    wait_until_gone(runtime)
    assert not [pid for pid, _ in state.processes if alive(pid)]
    if (seen / "shared").exists():
        assert not [p for p in (seen / "shared").read_text().split() if Path(p).exists()]
    if number == signal.SIGKILL:
        assert launcher.returncode == -signal.SIGKILL
    else:
        assert f"STOPPED BY {number.name}" in said


def test_when_even_the_keeper_is_killed_the_next_launch_cleans_up(
    options: ServeOptions, runtime: Path, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn leak")
    launcher = launch(options, "serving")
    state = state_of_run(runtime, 5)
    shared = [Path(name) for name in (seen / "shared").read_text().split()]
    vllm = json.loads((seen / "vllm.json").read_text())["pid"]
    ray = json.loads((seen / "ray.json").read_text())["pid"]
    engine = read_process(vllm)
    assert engine is not None
    bystander = subprocess.Popen(["sleep", "60"])
    (runtime / "not-a-run").mkdir()
    assert recover_stale_runs(runtime) == []  # it lives
    launcher.kill()
    os.kill(engine.parent, signal.SIGKILL)
    launcher.wait()
    deadline = time.monotonic() + 5
    while alive(vllm) or alive(ray):  # its children go with it
        assert time.monotonic() < deadline
        time.sleep(0.02)
    daemons = [pid for pid, _ in state.processes if alive(pid)]
    assert daemons, "the fakes' daemons should have survived"
    assert all(path.exists() for path in shared)
    (sentence,) = recover_stale_runs(runtime)
    assert f"stopped {len(daemons)} of its processes, removed 3 files" in sentence
    assert not [pid for pid in daemons if alive(pid)]
    assert not [path for path in shared if path.exists()]
    assert [path.name for path in runtime.iterdir()] == ["not-a-run"]
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
