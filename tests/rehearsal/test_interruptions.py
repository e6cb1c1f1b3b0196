"""What a rehearsal that is stopped or killed leaves, and whom one makes wait."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rig import cli_engine
from rig.errors import RigError
from rig.launch.processes import read_process
from rig.layout import Layout
from rig.pins import Pin
from rig.rehearsal import rehearse, stage
from rig.rehearsal.commands import ask_engine
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.locks import locked

SCRIPTS = Path(__file__).parents[2] / "scripts"
# A module that says who it is, and ends after some seconds.
SLOW = """
import os, sys, time
from pathlib import Path
Path("begun").write_text(str(os.getpid()))
time.sleep(float(sys.argv[1]))
Path("ended").touch()
"""


def start(code: str, folder: Path) -> subprocess.Popen[bytes]:
    """Run code in a folder that has the module `slow`, and wait until that has begun."""
    (folder / "slow.py").write_text(SLOW)
    victim = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not ((folder / "begun").exists() and (folder / "begun").read_text()):
        assert victim.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return victim


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("phase", ["install", "model"])
def test_a_signal_ends_what_runs_for_the_rehearsal(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path, number: signal.Signals, phase: str
) -> None:
    code = f"""
        import signal, sys
        from pathlib import Path
        from rig.layout import Layout
        from rig.pins import Pin
        from rig.rehearsal import rehearse
        from rig.rehearsal.commands import ask_engine, run_logged
        from rig.rehearsal.environment import EngineEnvironment
        signal.signal({int(number)}, signal.SIG_DFL)  # background jobs inherit that it is ignored
        def environment(*arguments, **more):
            if {phase!r} == "install":
                with open("a.lock", "w") as lock:
                    run_logged([sys.executable, "slow.py", "60"], Path("log"), lock.fileno())
            return EngineEnvironment(Path("environment"), "")
        def model(*arguments, lock):
            ask_engine(Path(sys.executable), "slow", ["60"], "", Path.cwd(), lock)
        rehearse.engine_environment = environment
        rehearse.photograph = lambda *arguments: b""
        rehearse.make_model = model
        layout = Layout(Path({str(layout.root)!r}), Path({str(layout.cache)!r}))
        pin = Pin.model_validate_json({pin.model_dump_json()!r})
        rehearse.rehearse(layout, pin, Path({str(wheel)!r}))
    """
    with start(code, tmp_path) as victim:
        child = int((tmp_path / "begun").read_text())
        victim.send_signal(number)
        try:
            assert victim.wait(20) != 0
        finally:
            victim.kill()
    left = read_process(child)
    if left is not None:
        os.kill(child, signal.SIGKILL)
    assert left is None


def test_after_a_kill_the_next_run_waits_for_the_module_that_still_runs(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from rig.rehearsal.commands import ask_engine
        from rig.rehearsal.locks import locked
        with locked(Path("a.lock"), "rehearsing") as lock:
            ask_engine(Path(sys.executable), "slow", ["2"], "", Path.cwd(), lock)
    """
    with start(code, tmp_path) as victim:
        victim.send_signal(signal.SIGKILL)
    assert not (tmp_path / "ended").exists()
    with locked(tmp_path / "a.lock", "rehearsing"):
        assert (tmp_path / "ended").exists()


def test_a_module_that_fails_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="No module named absent") as caught:
        ask_engine(Path(sys.executable), "absent", [], "", tmp_path)
    assert caught.value.next_step
    with pytest.raises(RigError, match="No such file") as caught:
        ask_engine(tmp_path / "bin" / "python", "absent", [], "", tmp_path)
    assert str(tmp_path) in (caught.value.next_step or "")


def test_a_model_is_made_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = EngineEnvironment(tmp_path / "environment", "")
    model = tmp_path / "model"
    (tmp_path / "model.part-1").mkdir()
    (tmp_path / "model.part-1" / "of a killed run").touch()

    def write(content: str, error: BaseException | None) -> None:
        def engine(python: Path, module: str, arguments: list[str], *more: object) -> str:
            folder = Path(arguments[1])
            folder.mkdir()
            (folder / "weights").write_text(content)
            if error is not None:
                raise error
            return "digest\n"

        monkeypatch.setattr(stage, "ask_engine", engine)
        assert stage.make_model(environment, model) == "digest"

    write("first", None)
    write("second", None)
    for error in (RigError("it failed"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            write("half", error)
    assert (model / "weights").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def is_free(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_rehearsal_of_another_release_does_not_wait_for_an_installation(
    layout: Layout, pin: Pin, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_all = layout.build / "rehearsal.lock"
    of_release = layout.build / f"engine-{pin.version}-rehearsal.lock"
    of_other = layout.build / "engine-0.31.0-rehearsal.lock"
    seen = []

    def install(*arguments: object, **more: object) -> EngineEnvironment:
        seen.append((is_free(of_all), is_free(of_release), is_free(of_other)))
        return EngineEnvironment(layout.build / "environment", "")

    monkeypatch.setattr(rehearse, "engine_environment", install)
    with rehearse.ready_environment(layout, pin, wheel):
        assert not is_free(of_all)
        assert not is_free(of_release)
    assert seen == [(True, False, True)]
    assert is_free(of_all)


@pytest.mark.parametrize("command", [cli_engine.rehearse, cli_engine.absence_command])
def test_a_release_without_a_cpu_wheel_is_refused_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, command: object
) -> None:
    def build(*arguments: object) -> None:
        raise AssertionError("it was built")

    monkeypatch.setattr(cli_engine, "built_wheel", build)
    assert callable(command)
    with pytest.raises(RigError, match="no CPU wheel") as caught:
        command("0.33.0")
    assert "0.32.0, 0.31.0" in str(caught.value)
