"""What cannot serve is refused, with the cause, and leaves nothing."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.engine_environment import require_gpus
from rig.launch.limits import open_files_to_allow
from rig.launch.plan import ServeOptions
from rig.launch.serve import plan_serve, serving

from .checks import nothing
from .clusters import installed, installed_with_0504


def test_the_cause_of_an_early_end_is_said(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "crash")
    with (
        pytest.raises(RigError) as caught,
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("a dead engine was given out as a server")
    assert (
        caught.value.what == "the engine ended (exit code 1): ValueError: no room for 512 KV blocks"
    )
    assert caught.value.where == options.log_folder / "engine.log"
    assert list(runtime.iterdir()) == []


def test_an_engine_that_is_killed_is_said_to_be(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "kill")
    with (
        pytest.raises(RigError, match=r"killed by signal 9.*out of memory"),
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("a dead engine was given out as a server")


def test_waiting_for_the_engine_is_bounded(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "hang")
    with (
        pytest.raises(RigError, match="not ready within 1 s"),
        serving(plan_serve(replace(options, ready_timeout_s=1)), check_installation=nothing),
    ):
        pytest.fail("a hanging engine was given out as a server")
    assert list(runtime.iterdir()) == []


def test_an_engine_that_waits_for_devices_says_what_there_is(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "waits")
    with (
        pytest.raises(RigError) as caught,
        serving(plan_serve(replace(options, ready_timeout_s=1)), check_installation=nothing),
    ):
        pytest.fail("a waiting engine was given out as a server")
    assert "it waits for 2 GPUs of Ray's and Ray has: 127.0.0.1 (boxa) with 2" in caught.value.what


def test_an_engine_that_ends_later_is_noticed(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with (
        pytest.raises(RigError, match="exit code 3"),
        serving(plan_serve(options), check_installation=nothing) as server,
    ):
        server.check_alive()
        for _ in range(100):
            time.sleep(0.1)
            server.check_alive()


def test_ray_that_does_not_start(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RAY", "fails")
    with (
        pytest.raises(RigError, match="Ray did not start: ValueError: the object store"),
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("served without Ray")
    assert list(runtime.iterdir()) == []


def test_ray_with_too_few_devices(options: ServeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_RAY", "few")
    monkeypatch.setattr("rig.launch.starting.RAY_TIMEOUT_S", 1.0)
    with (
        pytest.raises(RigError, match="did not offer 2 devices"),
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("served on too few devices")


def test_a_taken_port_is_said_before_anything_starts(options: ServeOptions, seen: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(RigError, match=f"port {port} is not free") as caught,
            serving(plan_serve(replace(options, port=port)), check_installation=nothing),
        ):
            pytest.fail("served on a taken port")
        assert f"pid {os.getpid()}" in str(caught.value.where)
    assert not (seen / "ray.json").exists()


def test_a_socket_open_to_others_stops_the_launch(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "open")
    with (
        pytest.raises(RigError, match="other machines can reach it"),
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("served with an open socket")
    assert list(runtime.iterdir()) == []
    allowed = replace(options, allow_open_sockets=True)
    with serving(plan_serve(allowed), check_installation=nothing) as server:
        assert any("0.0.0.0:" in warning for warning in server.warnings)


def test_torchs_store_is_known_and_said(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "store")
    with serving(plan_serve(options), check_installation=installed) as server:
        (warning,) = server.warnings
        assert "torch's store" in warning


def test_an_open_store_of_a_build_that_closes_it_stops_the_launch(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "store")
    plan = plan_serve(options)
    with (
        pytest.raises(RigError, match="other machines can reach it"),
        serving(plan, check_installation=installed_with_0504),
    ):
        pytest.fail("served with an open store")
    assert list(runtime.iterdir()) == []
    allowed = plan_serve(replace(options, allow_open_sockets=True))
    with serving(allowed, check_installation=installed_with_0504) as server:
        (warning,) = server.warnings
        assert "torch's store" in warning


def test_an_unfit_installation_is_refused_before_anything_starts(
    options: ServeOptions, seen: Path
) -> None:
    def refuse(python: Path) -> None:
        raise RigError("not a rig build", where=python)

    with (
        pytest.raises(RigError, match="not a rig build"),
        serving(plan_serve(options), check_installation=refuse),
    ):
        pytest.fail("served with another build")
    assert not (seen / "ray.json").exists()


def test_gpus_are_asked_for_when_it_is_no_rehearsal(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-0)'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with (
        pytest.raises(RigError, match="2 GPUs are needed and 1 are here"),
        serving(plan_serve(replace(options, rehearse=False)), check_installation=nothing),
    ):
        pytest.fail("served on too few GPUs")


def test_a_driver_that_holds_who_asks_it_does_not_hold_the_launch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process in the driver's hands survives SIGKILL: nobody may wait for its end."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexec sleep 30\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rig.launch.engine_environment._DRIVER_PATIENCE_S", 0.3)
    kill = subprocess.Popen.kill
    held: list[subprocess.Popen[str]] = []
    monkeypatch.setattr("subprocess.Popen.kill", lambda process: held.append(process))
    began = time.monotonic()
    try:
        with pytest.raises(RigError, match="does not answer"):
            require_gpus(1)
        assert time.monotonic() - began < 10
        assert held
    finally:
        for process in held:
            kill(process)
            process.wait()


@pytest.mark.parametrize("model", ["/not/there", "./none", "../none", "~/none", "~"])
def test_a_folder_that_is_not_there_is_refused_before_anything_starts(
    options: ServeOptions, seen: Path, model: str
) -> None:
    with (
        pytest.raises(RigError, match="the model's folder is not there") as caught,
        serving(plan_serve(replace(options, model=model)), check_installation=nothing),
    ):
        pytest.fail("served a model that is not there")
    assert caught.value.where == model
    assert not (seen / "ray.json").exists()


def test_a_log_folder_that_cannot_be_made(
    options: ServeOptions, runtime: Path, seen: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    plan = plan_serve(replace(options, log_folder=tmp_path / "file" / "logs"))
    with (
        pytest.raises(RigError, match="the folder for logs cannot be made") as caught,
        serving(plan, check_installation=nothing),
    ):
        pytest.fail("served without logs")
    assert "--log-folder" in str(caught.value.next_step)
    assert not (seen / "ray.json").exists()


def test_the_engine_may_open_more_files_than_the_shell(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with serving(plan_serve(options), check_installation=nothing) as server:
            limits = [Path(f"/proc/{pid}/limits").read_text() for pid in server.pids()]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    lines = [line for text in limits for line in text.splitlines() if line.startswith("Max open")]
    assert lines and {int(line.split()[3]) for line in lines} == {min(hard, 65536)}


@pytest.mark.parametrize(
    "limits, allowed",
    [((1024, 8192), (8192, 8192)), ((1024, -1), (65536, -1)), ((-1, -1), (-1, -1))],
)
def test_the_limit_of_open_files(
    limits: tuple[int, int], allowed: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert open_files_to_allow() == allowed


def test_too_few_open_files_are_refused_before_anything_starts(
    options: ServeOptions, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 2048))
    with (
        pytest.raises(RigError, match="may open 2048 files here and 4096 are needed"),
        serving(plan_serve(options), check_installation=nothing),
    ):
        pytest.fail("served with too few files")
    assert not (seen / "ray.json").exists()
