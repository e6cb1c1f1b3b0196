"""Start and stop for real, on fakes that behave as badly as the real programs can."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.plan import ServeOptions
from rig.launch.serve import StopSignal, plan_serve, serving

from .checks import alive, assert_clean, nothing


def seen_of(folder: Path, program: str) -> dict[str, object]:
    said: dict[str, object] = json.loads((folder / f"{program}.json").read_text())
    return said


def test_up_and_down(options: ServeOptions, runtime: Path, seen: Path) -> None:
    steps: list[str] = []
    plan = plan_serve(options)
    with serving(plan, check_installation=nothing, progress=steps.append) as server:
        assert server.version() == "9.9.9+rig.1.cpu"
        ranks = server.ranks()
        assert [rank.rank for rank in ranks] == [0, 1]
        assert [rank.name for rank in ranks] == ["vllm_Worker_1_TP0", "vllm_Worker_1_TP1"]
        assert all(alive(rank.pid) and rank.node_id == "n1" for rank in ranks)
        assert all(socket.on_loopback for socket in server.sockets())
        assert server.port in {socket.port for socket in server.sockets()}
        assert server.memory_bytes() > 0
        pids = server.pids()
        assert {rank.pid for rank in ranks} < set(pids)
        assert server.warnings == []
    assert_clean(server, runtime, pids)
    assert any(step.startswith("loading") for step in steps)
    assert steps[-1].startswith("stopped: ")
    assert server.engine_log.read_text().startswith("loading weights")


def test_what_the_programs_are_given(
    options: ServeOptions, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.9.9.9:6379")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["scripts", "/somewhere"]))
    plan = plan_serve(replace(options, extra_arguments=("--max-model-len", "512")))
    old = os.umask(0o022)
    try:
        with serving(plan, check_installation=nothing) as server:
            ray, vllm = seen_of(seen, "ray"), seen_of(seen, "vllm")
            address = server.ray_address
            token = Path(str(vllm["environment"]["RAY_AUTH_TOKEN_PATH"])).read_text()  # type: ignore[index]
            shown = Path("/proc").glob("[0-9]*/cmdline")
            lines = b"".join(path.read_bytes() for path in shown if alive(int(path.parent.name)))
            assert token.encode() not in lines
    finally:
        os.umask(old)
    assert ray["token_mode"] == "0o600"
    assert ray["folder_mode"] == "0o700"
    assert ray["token_bytes"] == 64
    environment = vllm["environment"]
    assert isinstance(environment, dict)
    assert environment["RAY_ADDRESS"] == address
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["VLLM_HOST_IP"] == "127.0.0.1"
    assert environment["PYTHONPATH"].endswith("/somewhere")
    assert "VLLM_RIG_RUNTIME" not in environment
    assert "RAY_ADDRESS" not in dict(ray["ray_variables"])  # type: ignore[call-overload]
    argv = list(vllm["argv"])  # type: ignore[call-overload]
    assert argv[:2] == ["serve", "some/model"]
    assert argv[-2:] == ["--max-model-len", "512"]
    assert "$" not in "".join(argv)


def test_a_private_run_under_a_strict_umask(options: ServeOptions, runtime: Path) -> None:
    old = os.umask(0o077)
    try:
        with serving(plan_serve(options), check_installation=nothing) as server:
            pids = server.pids()
    finally:
        os.umask(old)
    assert_clean(server, runtime, pids)


def test_programs_that_do_not_want_to_end_are_ended(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch, seen: Path
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn leak")
    began = time.monotonic()
    with serving(plan_serve(options), check_installation=nothing) as server:
        pids = server.pids()
        shared = (seen / "shared").read_text().split()
        assert len(shared) == 3
        foreign = Path("/dev/shm/psm_rig_test_foreign")
        foreign.write_bytes(b"not ours")
        ready = time.monotonic()
    assert_clean(server, runtime, pids)
    assert not [path for path in shared if Path(path).exists()]
    assert server.stopped is not None
    assert sorted(server.stopped.removed) == sorted(shared)
    assert foreign.read_bytes() == b"not ours"
    foreign.unlink()
    assert time.monotonic() - ready < 8 > ready - began


def test_files_of_others_are_left_though_the_engine_maps_them(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch, seen: Path
) -> None:
    older = Path("/dev/shm/psm_rig_test_older")
    older.write_bytes(bytes(4096))
    monkeypatch.setenv("FAKE_VLLM", f"leak map={older}")
    try:
        with serving(plan_serve(options), check_installation=nothing) as server:
            first, *others = (Path(name) for name in (seen / "shared").read_text().split())
            in_use = first.open("rb")
            pids = server.pids()
        assert_clean(server, runtime, pids)
        assert older.exists()
        assert first.exists()
        assert len(others) == 2
        assert not [path for path in others if path.exists()]
        in_use.close()
    finally:
        older.unlink()
        first.unlink(missing_ok=True)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_exception_in_the_block_passes_and_all_is_stopped(
    options: ServeOptions, runtime: Path, error: BaseException
) -> None:
    with (
        pytest.raises(type(error)) as caught,
        serving(plan_serve(options), check_installation=nothing) as server,
    ):
        pids = server.pids()
        raise error
    assert caught.value is error
    assert_clean(server, runtime, pids)


@pytest.mark.parametrize("error", [BrokenPipeError("the pipe"), SystemExit(1)])
def test_a_stop_is_whole_though_nobody_hears_of_it(
    options: ServeOptions, runtime: Path, error: BaseException
) -> None:
    """The terminal is gone, or the reader of a pipe: rich then ends the program."""
    stopping = False

    def tell(line: str) -> None:
        if stopping:
            raise error

    with serving(plan_serve(options), check_installation=nothing, progress=tell) as server:
        pids = server.pids()
        stopping = True
    assert_clean(server, runtime, pids)


def test_two_at_once_are_independent(options: ServeOptions, runtime: Path, tmp_path: Path) -> None:
    other = replace(options, log_folder=tmp_path / "other")
    with serving(plan_serve(options), check_installation=nothing) as first:
        with serving(plan_serve(other), check_installation=nothing) as second:
            assert first.port != second.port
            assert first.ray_address != second.ray_address
            assert not set(first.pids()) & set(second.pids())
            with (
                pytest.raises(RigError, match="is not free"),
                serving(plan_serve(replace(other, port=first.port)), check_installation=nothing),
            ):
                pytest.fail("shared a port")
            second_pids = second.pids()
        assert not [pid for pid in second_pids if alive(pid)]
        assert first.healthy()
        first.check_alive()
        pids = first.pids()
    assert_clean(first, runtime, pids)


def test_without_ray(options: ServeOptions, runtime: Path, seen: Path) -> None:
    plan = plan_serve(replace(options, executor="mp"))
    with serving(plan, check_installation=nothing) as server:
        assert server.version() == "9.9.9+rig.1.cpu"
        assert not (seen / "ray.json").exists()
        environment = seen_of(seen, "vllm")["environment"]
        assert isinstance(environment, dict)
        assert Path(environment["TMPDIR"]).parent == runtime
        assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        pids = server.pids()
    assert_clean(server, runtime, pids)


def test_sigterm_leaves_the_block_and_the_handler_is_put_back(
    options: ServeOptions, runtime: Path
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with (
        pytest.raises(StopSignal, match="SIGTERM"),
        serving(plan_serve(options), check_installation=nothing) as server,
    ):
        pids = server.pids()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert_clean(server, runtime, pids)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_hurries_the_stop(
    options: ServeOptions, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn")
    patient = replace(options, stop_patience_s=60)
    began = 0.0
    with (
        pytest.raises(StopSignal),
        serving(plan_serve(patient), check_installation=nothing) as server,
    ):
        pids = server.pids()
        began = time.monotonic()
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert time.monotonic() - began < 10
    assert_clean(server, runtime, pids)
