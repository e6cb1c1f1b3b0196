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

from rig.errors import RigError
from rig.launch.keeper_client import KeeperLostError
from rig.launch.plan import ServeOptions
from rig.launch.processes import read_process
from rig.launch.running import RANK_GONE_S
from rig.launch.runs import RunState, recover_stale_runs
from rig.launch.serve import plan_serve, serving
from rig.launch.supervise import LostWhileServing

from .checks import alive, assert_clean, nothing

LAUNCHER = Path(__file__).with_name("launcher.py")
SCRIPTS = Path(__file__).parents[2] / "scripts"
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STAGES = {
    "fit": "FITTING",
    "ray": "Ray 2.60.0: starting",
    "loading": "loading",
    "serving": "SERVING",
    "stopping": "stopping",
}


def launch(options: ServeOptions, stage: str) -> subprocess.Popen[str]:
    """A launcher that has come as far as the stage."""
    word = {"fit": ["fit"], "stopping": ["ends"]}.get(stage, [])
    launcher = subprocess.Popen(
        [sys.executable, LAUNCHER, options.log_folder, options.python, *word],
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
        *(("ray", number, 2) for number in ASKING),
        ("ray", signal.SIGKILL, 2),
        *(("loading", number, 5) for number in ASKING),
        ("loading", signal.SIGKILL, 5),
        *(("serving", number, 5) for number in ASKING),
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


@pytest.mark.parametrize("number", [*ASKING, signal.SIGKILL])
def test_before_anything_was_started(
    options: ServeOptions, runtime: Path, seen: Path, number: signal.Signals
) -> None:
    launcher = launch(options, "fit")
    launcher.send_signal(number)
    said, _ = launcher.communicate(timeout=10)
    assert list(runtime.iterdir()) == []
    assert not (seen / "ray.json").exists()
    if number == signal.SIGKILL:
        assert launcher.returncode == -signal.SIGKILL
    else:
        assert f"STOPPED BY {number.name}" in said


@pytest.mark.parametrize("number", [*ASKING, signal.SIGKILL])
def test_a_stop_is_not_cut_short_by_another_word(
    options: ServeOptions,
    runtime: Path,
    seen: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn leak")
    launcher = launch(options, "stopping")
    pids = [json.loads((seen / f"{name}.json").read_text())["pid"] for name in ("ray", "vllm")]
    launcher.send_signal(number)
    said, _ = launcher.communicate(timeout=30)
    wait_until_gone(runtime)
    if number == signal.SIGKILL:
        assert launcher.returncode == -signal.SIGKILL
    else:
        assert launcher.returncode == 0
        assert "STOPPED BY" not in said
        assert "processes ended, nothing is left" in said
    assert not [pid for pid in pids if alive(pid)]
    assert not [p for p in (seen / "shared").read_text().split() if Path(p).exists()]


def test_a_head_that_is_killed_is_named(
    options: ServeOptions, runtime: Path, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn leak")
    with (
        pytest.raises(LostWhileServing, match=r"error: Ray ended \(killed by signal 9\)"),
        serving(plan_serve(options), check_installation=nothing) as server,
    ):
        pids = server.pids()
        os.kill(json.loads((seen / "ray.json").read_text())["pid"], signal.SIGKILL)
        while True:
            server.check_alive()
            time.sleep(0.02)
    assert_clean(server, runtime, pids)


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


def test_a_launcher_whose_keeper_is_killed_cleans_up_itself(
    options: ServeOptions, runtime: Path, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn leak")
    steps: list[str] = []
    with (
        pytest.raises(KeeperLostError),
        serving(plan_serve(options), check_installation=nothing, progress=steps.append) as server,
    ):
        pids = server.pids()
        state_of_run(runtime, 5)
        engine = read_process(json.loads((seen / "vllm.json").read_text())["pid"])
        assert engine is not None
        os.kill(engine.parent, signal.SIGKILL)
        while True:
            server.check_alive()
    assert pids and not [pid for pid in pids if alive(pid)]
    assert not [p for p in (seen / "shared").read_text().split() if Path(p).exists()]
    assert list(runtime.iterdir()) == []
    assert any("removed 3 files in /dev/shm" in step for step in steps)
    assert steps[-1].startswith("removed the run's folder")


def test_a_rank_that_is_killed_is_named(
    options: ServeOptions, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(RigError) as caught,
        serving(plan_serve(options), check_installation=nothing) as server,
    ):
        rank = server.ranks()[1]
        server.check_alive()
        os.kill(rank.pid, signal.SIGKILL)
        while rank.pid in server.pids():
            time.sleep(0.02)
        server.check_alive()  # the engine may still say why
        os.kill(json.loads((seen / "vllm.json").read_text())["pid"], signal.SIGTERM)
        while True:
            time.sleep(0.02)
            server.check_alive()
    assert f"killed by signal 15, after rank 1 (pid {rank.pid}) had ended" in caught.value.what


def test_an_engine_that_does_not_miss_its_rank_is_given_up(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RANK_GONE_S > 5
    monkeypatch.setattr("rig.launch.running.RANK_GONE_S", 0.3)
    with (
        pytest.raises(RigError, match="ended, and the engine did not") as caught,
        serving(plan_serve(options), check_installation=nothing) as server,
    ):
        rank = server.ranks()[0]
        os.kill(rank.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            time.sleep(0.02)
            server.check_alive()
    assert f"rank 0 (pid {rank.pid})" in caught.value.what
