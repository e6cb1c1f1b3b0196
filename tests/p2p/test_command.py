"""`rig p2p` as a person meets it: refusals, what is shown and kept, exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rig.box.read
import rig.cli_p2p
import rig.p2p.command
from rig.box.facts import Box, CardProcess
from rig.cli import app
from rig.p2p.run import Conditions
from rig.p2p.store import verdict_file
from rig.p2p.verdict import Verdict

from .conftest import a_box

assert rig.cli_p2p  # its command joins those of rig.cli

Player = Callable[..., Path]
Seen = Callable[[], list[dict[str, Any]]]
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, and wide lines."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("rig.p2p.command.out.width", 200)
    return tmp_path / "xdg"


@pytest.fixture
def p2p(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command on a box as if it had been read here, with cards that stay well."""

    def run(box: Box, *arguments: object) -> Any:
        monkeypatch.setattr(rig.box.read, "read_box", lambda: box)
        monkeypatch.setattr(
            rig.p2p.command,
            "Conditions",
            lambda *a, **k: Conditions(*a, **({"missing": lambda box: {}} | k)),
        )
        return CliRunner().invoke(app, ["p2p", *map(str, arguments)])

    return run


def kept(box: Box) -> Verdict:
    return Verdict.model_validate_json(verdict_file(box).read_text())


def test_all_passes_and_is_kept(p2p: Run, player: Player) -> None:
    box, python = a_box(2), player({"used": {"nccl-p2p": ["P2P/CUMEM"]}})
    done = p2p(box, "--python", python)
    assert done.exit_code == 0, done.output
    assert "NCCL over P2P: proven over cards 0, 1" in done.output
    assert "NCCL without P2P, over all cards: works" in done.output
    verdict = kept(box)
    assert verdict.proven("nccl-p2p", (0, 1)) and verdict.proven("custom", (0, 1))
    shown = p2p(box, "--python", python, "--show")
    assert shown.exit_code == 0 and "by P2P/CUMEM" in shown.output


def test_progress_and_the_expected_time_are_said(p2p: Run, player: Player) -> None:
    done = p2p(a_box(2), "--python", player())
    assert "7 checks on 2 cards, about 3 min (a guess: not measured); 0 are not made" in done.output
    assert "[2/7] copy 0 to 1: passed, 5 sizes, up to 12.5 GB/s" in done.output


def test_wrong_data_is_exit_1_and_is_kept(p2p: Run, player: Player) -> None:
    box = a_box(2)
    done = p2p(box, "--python", player({"custom": {"wrong": "zeros", "size": 65536}}))
    assert done.exit_code == 1
    assert "custom all-reduce: stays off" in done.output
    assert not kept(box).proven("custom", (0, 1)) and kept(box).proven("nccl-p2p", (0, 1))


def test_a_refusal_by_the_driver_is_no_fault(p2p: Run, player: Player) -> None:
    box = a_box(2, p2p="refused")
    done = p2p(box, "--python", player())
    assert done.exit_code == 0
    assert "NCCL over P2P: stays off" in done.output
    assert "the driver refuses P2P between 0 and 1 (GNS)" in done.output


def test_no_nccl_at_all_is_exit_1(p2p: Run, player: Player) -> None:
    done = p2p(a_box(2), "--python", player({"nccl-no-p2p": {"do": "sys.exit(1)"}}))
    assert done.exit_code == 1
    assert "DOES NOT WORK" in done.output


def test_only_keeps_what_was_known_of_the_rest(p2p: Run, player: Player) -> None:
    box = a_box(2)
    p2p(box, "--python", player())
    bad = player({"copy": {"wrong": "zeros"}})
    done = p2p(box, "--python", bad, "--only", "copy")
    assert done.exit_code == 1
    assert kept(box).proven("nccl-p2p", (0, 1)) and not kept(box).proven("copy", (0, 1))


def test_after_a_driver_update_nothing_is_proven(p2p: Run, player: Player) -> None:
    box, python = a_box(2), player()
    p2p(box, "--python", python)
    host = box.host.model_copy(update={"driver_version": "590.1"})
    done = p2p(box.model_copy(update={"host": host}), "--python", python, "--show")
    assert done.exit_code == 1
    assert "driver was 580.95.05, is 590.1" in done.output
    as_json = p2p(box.model_copy(update={"host": host}), "--python", python, "--show", "--json")
    assert json.loads(as_json.stdout)["verdict"] is None


def test_json_is_one_line_on_standard_output(p2p: Run, player: Player) -> None:
    done = p2p(a_box(2), "--python", player(), "--json", "--quick")
    said = json.loads(done.stdout)
    assert said["good"] is True and said["rehearsal"] is False
    assert Verdict.model_validate(said["verdict"]).proven("copy", (0, 1))


def test_cards_in_use_are_refused_by_name(p2p: Run, player: Player, seen: Seen) -> None:
    box = a_box(2, processes=(CardProcess(pid=4711, name="python serve"),))
    done = p2p(box, "--python", player())
    assert done.exit_code == 2
    assert "card 0: python serve (pid 4711)" in done.output
    assert not seen()
    assert p2p(box, "--python", player(), "--force").exit_code == 0


def test_use_that_cannot_be_seen_is_said(p2p: Run, player: Player) -> None:
    done = p2p(a_box(2, processes=None), "--python", player())
    assert "whether card 0, 1 is in use cannot be seen" in done.output


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (Box(source="a test", notes=("no NVIDIA driver answers",)), "no NVIDIA driver answers"),
        (a_box(0), "the driver shows 0"),
        (a_box(1), "P2P needs two cards; the driver shows 1"),
    ],
)
def test_too_few_cards(box: Box, said: str, p2p: Run, player: Player) -> None:
    for more in ((), ("--show",)):
        done = p2p(box, "--python", player(), *more)
        assert done.exit_code == 2
        assert said in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "nvlink"],
        ["--python", "/no/such/python"],
        ["--fault", "wrong"],
        ["--rehearse", "1"],
        ["--rehearse", "17"],
        ["--rehearse", "2", "--show"],
        ["--timeout", "0"],
        ["--nonsense"],
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str], p2p: Run, player: Player, seen: Seen) -> None:
    done = p2p(a_box(2), "--python", player(), *arguments)
    assert done.exit_code == 2, done.output
    assert not seen()


def test_a_python_without_torch(p2p: Run) -> None:
    done = p2p(a_box(2), "--python", sys.executable)
    assert done.exit_code == 2
    assert "no torch is installed there" in done.output


def test_a_rehearsal_is_marked_and_keeps_nothing(p2p: Run, player: Player, state: Path) -> None:
    done = p2p(a_box(2), "--python", player(), "--rehearse", 3)
    assert done.exit_code == 0
    assert "REHEARSAL" in done.output and "proven" not in done.output
    assert not state.exists()


def test_a_rehearsal_of_what_needs_cards(p2p: Run, player: Player, seen: Seen) -> None:
    done = p2p(a_box(2), "--python", player(), "--rehearse", 2, "--only", "custom")
    assert "it needs cards" in done.output
    assert not seen()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_all(number: signal.Signals, player: Player, tmp_path: Path) -> None:
    python = player({"*": {"do": "time.sleep(600)"}})
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    code = "import rig.cli_p2p; from rig.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "p2p", "--rehearse", "2", "--python", str(python)],
        env=os.environ | {"PYTHONPATH": str(scripts), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started = tmp_path / "play.json.seen"
    until = time.monotonic() + 20
    while not (started.exists() and started.read_text().count("\n") == 2):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + number, said
    assert "nothing is left behind" in said
    assert not list(tmp_path.glob("rig-p2p-*"))
