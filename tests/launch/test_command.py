"""The command line: what is ours, what is vLLM's, and what each exit status means."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.console import console
from rig.launch import command
from rig.launch.command import proof, serve_main, split_command_line
from rig.launch.engine_environment import choose_python
from rig.launch.plan import ServeOptions
from rig.launch.ports import find_free_port
from rig.launch.processes import marked
from rig.launch.serve import RunningServer, plan_serve, serving

from .conftest import FakeEngine, make_engine


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_our_options_are_taken_out_wherever_they_stand() -> None:
    line = split_command_line(
        ["--dry-run", "m", "-hf", "x", "--python=/p", "-tp", "2", "--executor", "mp", "--", "--x"]
    )
    assert line.values == {"--dry-run": "", "--python": "/p", "--executor": "mp"}
    assert line.rest == ["m", "-hf", "x", "-tp", "2", "--", "--x"]
    assert not line.help


@pytest.mark.parametrize(
    "argv, said",
    [
        ([], "no rig was named"),
        (["--rig", "4x3090"], "no model was named"),
        (["--rig", "4x3090", "--max-model-len", "5"], "no model was named"),
        (["--rig", "4x3009", "m"], "did you mean 4x3090"),
        (["--rig", "auto", "m", "--rehearse"], "a rehearsal has none"),
        (["--rig", "4x3090", "m", "--health-failures", "0"], "--health-failures is '0'"),
        (["--rig", "4x3090", "m", "--health-every", "0"], "--health-every is '0'"),
        (["--rig", "4x3090", "./not-there"], "the model's folder is not there"),
        (["--rig", "4x3090", "m", "--executor", "uni"], "--executor is 'uni'"),
        (["--rig", "4x3090", "m", "--python"], "--python needs a value"),
        (["--rig", "4x3090", "m", "--dry-run=yes"], "takes no value"),
        (["--rig", "4x3090", "m", "--port", "99999"], "whole number, 1 to 65535"),
        (["--rig", "4x3090", "m", "--ready-timeout", "nan"], "--ready-timeout is 'nan'"),
        (["--rig", "4x3090", "m", "--ready-timeout=-1"], "--ready-timeout is '-1'"),
        (["--rig", "4x3090", "m", "--ready-timeout", "soon"], "--ready-timeout is 'soon'"),
        (["--rig", "4x3090", "m", "-tp", "two"], "--tensor-parallel-size is 'two'"),
        (["--rig", "4x3090", "m", "--python", "/not/there"], "VLLM_RIG_PYTHON"),
    ],
)
def test_wrong_usage_is_2(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_main(argv) == 2
    if argv:  # without a model nothing else is looked at
        assert said in capsys.readouterr().err


def test_help_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_main(["--help"]) == 0
    assert "--dry-run" in capsys.readouterr().out


def test_which_python(engine: FakeEngine, tmp_path: Path) -> None:
    asked, named = str(engine.python), {"VLLM_RIG_PYTHON": str(engine.python)}
    assert choose_python(asked, {"VIRTUAL_ENV": "/x"}) == engine.python
    assert choose_python(None, {**named, "VIRTUAL_ENV": "/x"}) == engine.python
    active = {"VIRTUAL_ENV": str(engine.python.parents[1])}
    assert choose_python(None, active) == engine.python
    (tmp_path / "python3").symlink_to(engine.python)
    assert choose_python(None, {"PATH": str(tmp_path)}) == tmp_path / "python3"


def test_an_environment_without_vllm_or_ray(
    tmp_path: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = make_engine(tmp_path / "bare")
    argv = ["--rig", "2x3090", "m", "--rehearse", "--python", str(bare.python)]
    assert serve_main(argv) == 1
    assert "no vLLM is installed" in capsys.readouterr().err
    bare.add_distribution("vllm", "1")
    assert serve_main(argv) == 1
    assert "its program is not beside" in capsys.readouterr().err
    (bare.python.parent / "vllm").touch()
    assert serve_main(argv) == 1
    said = capsys.readouterr().err
    assert '-m pip install "ray==2.60.0"' in said and "not ray[llm]" in said


def test_another_build_of_vllm_is_refused(
    engine: FakeEngine, runtime: Path, seen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve_main(["--rig", "2x3090", "m", "--rehearse", "--python", str(engine.python)]) == 1
    assert "what says which patches it carries is missing" in capsys.readouterr().err
    assert not (seen / "ray.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_shows_its_proof_then_the_log_until_it_is_told_to_stop(
    options: ServeOptions,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(command, "require_rig_build", lambda _: None)

    def proof_then_signal(server: RunningServer) -> list[str]:
        threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
        return proof(server)

    monkeypatch.setattr(command, "proof", proof_then_signal)
    port = find_free_port()
    argv = ["--rig", "2x3090", "some/model", "--rehearse", "--python", str(options.python)]
    argv += ["--port", str(port)]
    assert serve_main([*argv, "--no-plan", "--log-folder", str(options.log_folder)]) == 0
    said = capsys.readouterr()
    assert f"url      http://127.0.0.1:{port}/v1" in said.out
    assert "version  9.9.9+rig.1.cpu" in said.out
    assert "rank 1   pid " in said.out
    assert "private, token required" in said.out
    assert "nothing is left" in said.err
    assert list(runtime.iterdir()) == []


def test_what_the_engine_says_while_it_loads_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_force_terminal", True)
    command.Printer()("loading, 3 s: [/layer] of [red]model[0]")
    assert "[/layer] of [red]model[0]" in capsys.readouterr().err


def test_the_dry_run_is_what_serve_does(
    options: ServeOptions, seen: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The printed script, run by bash, calls the programs as `serving` does."""
    extra = ["--hf-overrides", '{"a b": "$HOME `x`"}', "--max-model-len", "512"]
    options = replace(options, model="some/$RIG_RUN$PATH`id` model")
    argv = ["--rig", "2x3090", options.model, "--python", str(options.python), "--rehearse"]
    port = find_free_port()
    extra += ["--port", str(port)]
    assert serve_main([*argv, *extra, "--dry-run"]) == 0
    script = tmp_path / "dry run.sh"
    script.write_text(capsys.readouterr().out)
    assert not (seen / "vllm.json").exists()
    shell = subprocess.Popen(["bash", script], start_new_session=True, stdout=subprocess.DEVNULL)
    by_hand = _called(seen)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    run = Path(by_hand[0]["environment"]["VLLM_RPC_BASE_PATH"])
    plan = plan_serve(replace(options, extra_arguments=tuple(extra)))
    with serving(plan, check_installation=lambda _: None):
        by_us = _called(seen)
    assert [c["argv"] for c in _neutral(by_hand)] == [c["argv"] for c in _neutral(by_us)]
    for name in plan.engine_environment:
        assert _neutral(by_hand)[0]["environment"][name] == _neutral(by_us)[0]["environment"][name]
    # Nobody keeps what was started by hand; only now it is no longer needed for comparing.
    for process in marked("FAKE_SEEN", str(seen)):
        os.kill(process.pid, signal.SIGKILL)
    shutil.rmtree(run)


def _called(seen: Path) -> list[dict[str, dict[str, str]]]:
    deadline = time.monotonic() + 20
    while not (seen / "vllm.json").exists() or not (seen / "vllm.json").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.2)
    said = [json.loads((seen / f"{name}.json").read_text()) for name in ("vllm", "ray")]
    for name in ("vllm", "ray"):
        (seen / f"{name}.json").unlink()
    return said


def _neutral(calls: list[dict[str, dict[str, str]]]) -> list[dict[str, dict[str, str]]]:
    """The same calls without the folder and ports that are each run's own."""
    run = calls[0]["environment"]["VLLM_RPC_BASE_PATH"]
    text = json.dumps(calls).replace(run, "RUN")
    text = text.replace(calls[0]["environment"]["RAY_ADDRESS"], "ADDRESS")
    found: list[dict[str, dict[str, str]]] = json.loads(
        re.sub(r"ray-client-server-port=\d+", "ray-client-server-port=N", text)
    )
    return found
