"""What the rehearsal makes of the engine's words on tower streaming, and how it is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rig import cli_engine
from rig.cli import app
from rig.errors import RigError
from rig.rehearsal import rehearse as rehearsal
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.stage import serve_options
from rig.rehearsal.streaming import check_streaming, streamed_towers, streaming_lines

ROOT = Path(__file__).resolve().parents[2]
WHO = "\x1b[36m(RayWorkerProc pid=71)\x1b[0m INFO 11-29 19:00:00 [offloader.py:12] "
MARK = "Tower streaming: "
ONE = (
    "visual: 7 units, 2.3 MiB streamed per encode; 1 units, 0.3 MiB resident; "
    "ring of 3 slots of 0.5 MiB, 1.5 MiB; stem 0.1 MiB resident"
)
OTHER = ONE.replace("visual: 7 units, 2.3", "audio_tower, audio_projector: 32 units, 812.5")
CPU = "visual: the CPU computes, so this saves no memory: it shows that streaming is right"


def log(folder: Path, *lines: str) -> Path:
    path = folder / "engine.log"
    path.write_text("".join(f"{line}\n" for line in ("INFO 11-29 19:00:00 [a.py:1] up", *lines)))
    return path


def test_each_line_counts_once_whatever_rank_says_it(tmp_path: Path) -> None:
    said = [f"{who}{MARK}{line}" for line in (ONE, OTHER) for who in (WHO, WHO.replace("71", "72"))]
    assert streaming_lines(log(tmp_path, *said, f"we said {MARK}{CPU}")) == (ONE, OTHER)


def test_a_tower_is_read_with_its_units_and_bytes() -> None:
    one, other = streamed_towers([ONE, CPU, OTHER])
    assert (one.name, one.units, one.mib, one.line) == ("visual", 7, 2.3, ONE)
    assert (other.name, other.units, other.mib) == ("audio_tower, audio_projector", 32, 812.5)


@pytest.mark.parametrize(
    "line",
    [
        CPU,
        ONE.replace("7 units", "0 units"),
        ONE.replace("2.3 MiB", "0.0 MiB"),
        "visual: nothing streams, all 2.6 MiB stay on the device: its 8 units fit the ring",
    ],
)
def test_what_streams_nothing_is_no_proof(tmp_path: Path, line: str) -> None:
    path = log(tmp_path, WHO + MARK + line)
    assert streamed_towers(streaming_lines(path)) == ()
    with pytest.raises(RigError, match="none that streams") as caught:
        check_streaming(path, wanted=True)
    assert line in str(caught.value)


def test_what_was_asked_for_passes(tmp_path: Path) -> None:
    path = log(tmp_path, WHO + MARK + ONE, WHO + MARK + CPU)
    (tower,) = check_streaming(path, wanted=True)
    assert tower.line == ONE
    assert check_streaming(log(tmp_path), wanted=False) == ()


def test_silence_where_it_should_stream_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="none that streams"):
        check_streaming(log(tmp_path), wanted=True)
    with pytest.raises(RigError, match="cannot be read"):
        check_streaming(tmp_path / "none.log", wanted=True)


def test_any_word_of_it_where_it_should_not_stream_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="not asked") as caught:
        check_streaming(log(tmp_path, WHO + MARK + CPU), wanted=False)
    assert CPU in str(caught.value)


def test_further_arguments_come_after_those_of_every_rehearsal(tmp_path: Path) -> None:
    environment = EngineEnvironment(tmp_path / "env", "0.32.0+rig.1.cpu")
    model = tmp_path / "model"
    without = serve_options(environment, model, tmp_path, ranks=2)
    options = serve_options(environment, model, tmp_path, ranks=2, more=("--offload-towers",))
    assert options.extra_arguments == (*without.extra_arguments, "--offload-towers")


@pytest.mark.parametrize("asked", [True, False])
def test_the_command_passes_the_wish_on(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(rehearsal, "rehearse", lambda *_, **options: told.append(options))

    class Wheel:
        path = Path("a.whl")

    monkeypatch.setattr(cli_engine, "built_wheel", lambda *_: Wheel)
    words = ["rehearse", "0.32.0", "--ranks", "2", *(["--offload-towers"] if asked else [])]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert told == [{"ranks": 2, "executor": "ray", "offload_towers": asked}]


@pytest.mark.parametrize(
    ("given", "passed_on"), [("1", True), ("0", False), ("", False), (None, False)]
)
def test_make_passes_the_wish_on(given: str | None, passed_on: bool) -> None:
    words = [] if given is None else [f"OFFLOAD_TOWERS={given}"]
    done = make("rehearse", *words)
    assert done.returncode == 0, done.stderr
    assert ("--offload-towers" in done.stdout.split()) == passed_on
    assert "--ranks 4" in done.stdout


@pytest.mark.parametrize("given", ["yes", "true", "2", "1 0 2"])
def test_make_refuses_another_value(given: str) -> None:
    done = make("rehearse", f"OFFLOAD_TOWERS={given}")
    assert done.returncode == 2
    assert "OFFLOAD_TOWERS is 1 or 0" in done.stderr


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
