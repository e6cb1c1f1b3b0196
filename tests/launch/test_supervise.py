"""What systemd is told, and what its units say."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.supervise import (
    FAILED,
    LOST,
    LostWhileServing,
    Supervisor,
    exit_code,
    status,
)
from rig.launch.supervise_health import NotTakenError
from rig.launch.supervise_notify import notify, watchdog_interval_s

SCRIPTS = Path(__file__).parents[2] / "scripts"
UNITS = sorted((SCRIPTS / "systemd").glob("*.service"))


@dataclass
class Listener:
    """The supervisor's end of the protocol."""

    socket: socket.socket

    def said(self) -> list[str]:
        found: list[str] = []
        self.socket.settimeout(0.2)
        while True:
            try:
                found += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                return found


@pytest.fixture(params=["a file", "an abstract name"])
def systemd(
    request: pytest.FixtureRequest, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Listener]:
    name = str(runtime / "notify") if request.param == "a file" else f"\0rig-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        yield Listener(listening)


def test_a_supervisor_hears_of_each_step(systemd: Listener) -> None:
    status("loading\n  weights")
    with Supervisor("http://127.0.0.1:1") as supervisor:
        supervisor.tick()
    assert systemd.said() == [
        "STATUS=loading weights",
        "READY=1",
        "STATUS=serving at http://127.0.0.1:1",
        "STOPPING=1",
        "STATUS=stopping",
    ]


def test_without_a_supervisor_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    assert not notify("READY=1", {"NOTIFY_SOCKET": "/not/there"})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "vsock:2:1"})


@pytest.mark.parametrize(
    "inherited, seconds",
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_how_often_a_heartbeat_is_due(inherited: dict[str, str], seconds: float | None) -> None:
    assert watchdog_interval_s(inherited) == seconds


def test_heartbeats_come_from_a_launcher_that_looks_after_its_server(
    systemd: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with Supervisor("url") as supervisor:
        systemd.said()
        assert systemd.said() == []  # nobody ticks
        supervisor.tick()
        supervisor.tick()
        assert systemd.said() == ["WATCHDOG=1"]  # not more often than asked
        time.sleep(0.06)
        supervisor.tick()
        assert systemd.said() == ["WATCHDOG=1"]


def test_health_that_cannot_be_asked_is_said_once_and_ends_nothing(
    systemd: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask() -> None:
        raise NotTakenError("status 404")

    with Supervisor("url", health_every_s=0.01, health_failures=1, ask=ask) as supervisor:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            supervisor.tick()
            time.sleep(0.01)
    said = capsys.readouterr().err
    assert said.count("warning: nothing is known of the server's health: status 404") == 1
    assert sum("health" in line for line in systemd.said()) == 1


@pytest.mark.parametrize("error", [RigError("no token came"), KeyError("no token came")])
def test_many_failures_in_a_row_are_the_end(error: Exception) -> None:
    def ask() -> None:
        raise error

    deadline = time.monotonic() + 10
    with (
        pytest.raises(
            LostWhileServing, match=r"failed \d+ real requests in a row: .*no token came"
        ),
        Supervisor("url", health_every_s=0.01, health_failures=3, ask=ask) as supervisor,
    ):
        while time.monotonic() < deadline:
            supervisor.tick()
            time.sleep(0.005)


def test_one_answer_makes_up_for_failures() -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        if len(asked) % 3:
            raise RigError("no")

    with Supervisor("url", health_every_s=0.002, health_failures=3, ask=ask) as supervisor:
        while len(asked) < 15:
            supervisor.tick()
            time.sleep(0.001)


def test_exit_codes() -> None:
    assert exit_code(RigError("it did not start")) == FAILED == 1
    assert exit_code(LostWhileServing("it served")) == LOST == 5


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, runtime: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    instance = runtime / unit.name.replace("@", "@some")
    shutil.copy(unit, instance)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}

    def complaints() -> str:
        command = [program, "verify", "--user", "--man=no", str(instance)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        if "Failed to initialize manager" in done.stderr:
            pytest.skip(f"systemd-analyze cannot verify here: {done.stderr.strip()}")
        return done.stdout + done.stderr

    assert complaints() == ""
    instance.write_text(unit.read_text().replace("KillMode=mixed", "KillMood=mixed"))
    assert "KillMood" in complaints()


def exec_start(unit: Path, variables: dict[str, str], checkout: Path) -> list[str]:
    """What the unit's command calls our script with."""
    (checkout / "scripts").mkdir()
    name = "ray-join.sh" if "join" in unit.name else "serve.sh"
    script = checkout / "scripts" / name
    script.write_text('#!/bin/sh\necho "$$"\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    script.chmod(0o755)
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    command = [word.replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]
    started = subprocess.Popen(
        command,
        env={"RIG_CHECKOUT": str(checkout), "PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = started.communicate(timeout=20)
    pid, *words = said.splitlines()
    assert int(pid) == started.pid, "systemd would take notice of another process"
    return words


def test_what_the_units_run(tmp_path: Path) -> None:
    serve, join = (
        next(u for u in UNITS if u.name == n)
        for n in ("vllm-rig@.service", "vllm-rig-join@.service")
    )
    (tmp_path / "a b").mkdir()
    (tmp_path / "c").mkdir()
    told = {"RIG_MODEL": "/models/with space", "RIG_ARGUMENTS": "--max-model-len 512"}
    words = exec_start(serve, told, tmp_path / "a b")
    assert words[:3] == ["--rig", "auto", "/models/with space"]
    assert words[3:] == ["--health-every", "60", "--max-model-len", "512"]
    told = {"RIG_HEAD": "10.0.0.1", "RIG_TOKEN_FILE": "/t", "RIG_ARGUMENTS": ""}
    assert exec_start(join, told, tmp_path / "c") == ["10.0.0.1", "--token-file", "/t"]


def test_a_wrong_restart_is_not_tried_for_what_it_cannot_mend() -> None:
    (serve,) = [unit for unit in UNITS if unit.name == "vllm-rig@.service"]
    assert "RestartPreventExitStatus=2 3 4\n" in serve.read_text()


def test_the_launcher_imports_neither_the_engine_nor_a_systemd_library() -> None:
    code = (
        "import sys, rig.launch.supervise, rig.launch.cluster_command\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('vllm', 'torch', 'systemd')])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"
