"""How processes are watched and ended: with stand-ins that hang, crash, litter and go deaf."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rig.box.facts import Box
from rig.launch.processes import read_process
from rig.p2p.cases import Case
from rig.p2p.group import sweep_scratch
from rig.p2p.run import Conditions, in_words, run_case, run_cases
from rig.p2p.verdict import Result

from .conftest import a_box

Player = Callable[..., Path]
Seen = Callable[[], list[dict[str, Any]]]
SIZES = (4096, 65536)
COPY = Case("copy", (0, 1), SIZES)
NCCL = Case("nccl-p2p", (0, 1), SIZES, level="PHB")
HANG = "time.sleep(600)"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Scratch folders go here, and none is left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def conditions(python: Path, **more: Any) -> Conditions:
    settings: dict[str, Any] = {"silent_s": 1.0, "seed": 7, "missing": lambda box: {}}
    return Conditions(python, **(settings | more))


def outcomes(results: Sequence[Result]) -> list[str]:
    return [r.outcome for r in results]


def run(case: Case, python: Path, **more: Any) -> list[Result]:
    return run_case(case, a_box(4), conditions(python, **more))[0]


def ended(pid: int) -> bool:
    process = read_process(pid)
    return process is None or not process.alive


def test_a_case_that_passes(player: Player, seen: Seen) -> None:
    results = run(NCCL, player())
    assert outcomes(results) == ["passed", "passed"]
    assert results[0].gb_per_s == 12.5
    assert sorted(s["rank"] for s in seen()) == [0, 1]
    assert seen()[0]["case"]["seed"] == 7


def test_a_copy_is_one_process(player: Player, seen: Seen) -> None:
    run(COPY, player())
    assert [s["rank"] for s in seen()] == [0]


def test_a_hang_is_a_result_and_no_process_is_left(player: Player, tmp_path: Path) -> None:
    do = (
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"with open({str(tmp_path / 'pids')!r}, 'a') as file:\n"
        "    file.write(f'{os.getpid()} {child.pid} ')\n"
        "time.sleep(600)"
    )
    python = player({"nccl-p2p": {"do": do, "size": 65536}})
    began = time.monotonic()
    results = run(NCCL, python)
    assert outcomes(results) == ["passed", "hang"]
    assert time.monotonic() - began < 8
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4
    assert all(ended(pid) for pid in pids)


def test_a_rank_that_is_deaf_to_polite_signals(player: Player) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + HANG
    assert outcomes(run(COPY, player({"copy": {"do": deaf}}))) == ["hang", "not run"]


def test_work_that_is_slow_but_not_silent_is_no_hang(player: Player) -> None:
    slow = "[(time.sleep(0.4), say('working')) for _ in range(5)]"
    assert outcomes(run(COPY, player({"copy": {"do": slow}}))) == ["passed", "passed"]


def test_a_crash_of_one_rank_ends_the_others(player: Player) -> None:
    python = player(
        {"nccl-p2p": {"do": "os.kill(os.getpid(), signal.SIGSEGV) if rank == 1 else " + HANG}}
    )
    began = time.monotonic()
    results = run(NCCL, python, silent_s=60.0)
    assert outcomes(results) == ["crash", "not run"]
    assert "rank 1 ended by SIGSEGV" in results[0].detail
    assert time.monotonic() - began < 15


def test_a_refusal_of_one_rank_is_no_hang_of_the_other(player: Player) -> None:
    refuse = "(say('refused', detail='three cards'), sys.exit(0)) if rank == 1 else " + HANG
    results = run(NCCL, player({"nccl-p2p": {"do": refuse}}), silent_s=60.0)
    assert outcomes(results) == ["failed", "failed"]
    assert results[0].detail == "three cards"


def test_a_status_and_what_it_said(player: Player) -> None:
    results = run(COPY, player({"copy": {"do": "print('no room', file=sys.stderr); sys.exit(5)"}}))
    assert outcomes(results) == ["failed", "not run"]
    assert results[0].detail == "rank 0 ended with status 5 (no room)"


def test_a_hang_at_the_end(player: Player) -> None:
    assert outcomes(run(COPY, player({"copy": {"at_end": HANG}}))) == ["passed", "hang"]


def test_shared_memory_is_removed(player: Player) -> None:
    make = "block = shared_memory.SharedMemory(create=True, size=64); "
    note = "open(os.environ['NOTE'], 'w').write(block.name); "
    script = {"copy": {"do": "from multiprocessing import shared_memory; " + make + note + HANG}}
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        os.environ["NOTE"] = file.name
        try:
            run(COPY, player(script))
        finally:
            del os.environ["NOTE"]
        name = Path(file.name).read_text()
    assert name and not Path("/dev/shm", name.lstrip("/")).exists()


def test_a_card_that_is_gone_afterwards(player: Player) -> None:
    results, end = run_case(
        COPY,
        a_box(2),
        conditions(player({"copy": {"do": "sys.exit(1)"}}), missing=lambda box: {1: "it is gone"}),
    )
    assert outcomes(results) == ["lost", "not run"]
    assert end.lost == {1: "it is gone"}


def test_the_cards_are_asked_for_only_after_a_bad_end(player: Player) -> None:
    asked: list[Box] = []

    def missing(box: Box) -> dict[int, str]:
        asked.append(box)
        return {}

    run(COPY, player({"nccl-p2p": {"do": "sys.exit(1)"}}), missing=missing)
    assert not asked
    run(NCCL, player({"nccl-p2p": {"do": "sys.exit(1)"}}), missing=missing)
    assert len(asked) == 1


def test_after_a_hang_its_cards_are_left_alone(player: Player, seen: Seen) -> None:
    cases = [
        Case("copy", (0, 1), SIZES),
        Case("copy", (1, 2), SIZES),
        Case("copy", (2, 3), SIZES),
        Case("nccl-p2p", (0, 1, 2, 3), SIZES, level="SYS"),
    ]
    python = player({"copy": {"do": HANG, "cards": [0, 1]}})
    results = run_cases(cases, a_box(4), conditions(python), lambda line: None)
    assert outcomes(results) == [
        *("hang", "not run"),
        *("not run", "not run"),
        *("passed", "passed"),
        *("not run", "not run"),
    ]
    assert results[2].detail == "copy 0 to 1 hung at 4096 bytes"
    assert [s["case"]["cards"] for s in seen()] == [[0, 1], [2, 3]]


def test_a_skipped_case_says_why_and_runs_nothing(player: Player, seen: Seen) -> None:
    said: list[str] = []
    case = Case("custom", (0, 1, 2), SIZES, skip="three cards")
    results = run_cases([case], a_box(3), conditions(player()), said.append)
    assert outcomes(results) == ["not run", "not run"]
    assert not seen()
    assert said == ["[1/1] custom 0, 1, 2: not run: three cards"]


def test_what_is_kept_when_the_machine_goes_down_midway(player: Player) -> None:
    kept: list[list[str]] = []
    run_cases(
        [COPY],
        a_box(2),
        conditions(player()),
        lambda line: None,
        lambda case, results: kept.append(outcomes(results)),
    )
    assert kept == [["crash", "crash"], ["passed", "passed"]]


def test_an_interruption_is_kept_and_ends_everything(player: Player) -> None:
    kept: list[list[str]] = []
    python = player({"copy": {"do": HANG}})

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.8)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_cases(
                [COPY],
                a_box(2),
                conditions(python, silent_s=60.0),
                lambda line: None,
                lambda case, results: kept.append(outcomes(results)),
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert kept[-1] == ["not run", "not run"]


def environment(case: Case, player: Player, seen: Seen, **more: Any) -> dict[str, str]:
    run(case, player(), **more)
    env: dict[str, str] = seen()[-1]["env"]
    return env


def test_the_environment_of_nccl_over_p2p(
    player: Player, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NCCL_P2P_DISABLE", "NCCL_PROTO", "CUDA_VISIBLE_DEVICES", "VLLM_RIG_PYTHON"):
        monkeypatch.setenv(name, "7")
    env = environment(NCCL, player, seen)
    assert (env["NCCL_P2P_DISABLE"], env["NCCL_P2P_LEVEL"]) == ("0", "PHB")
    assert (env["CUDA_DEVICE_ORDER"], env["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "0,1")
    assert "NCCL_PROTO" not in env and "VLLM_RIG_PYTHON" not in env
    assert "VLLM_CUSTOM_ALLREDUCE_PCIE" not in env


def test_the_other_ways_stand_without_nccls_p2p(player: Player, seen: Seen) -> None:
    for case in (COPY, Case("nccl-no-p2p", (0, 1), SIZES), Case("custom", (0, 1), SIZES)):
        assert environment(case, player, seen)["NCCL_P2P_DISABLE"] == "1"


def test_custom_on_four_pcie_cards_gets_a_permit_for_these_cards(
    player: Player, seen: Seen
) -> None:
    look = "open(os.environ['TMPDIR'] + '/../../permit', 'w').write("
    look += "open(os.environ['VLLM_CUSTOM_ALLREDUCE_PCIE']).read())"
    python = player({"custom": {"do": look, "rank": 0}})
    run(Case("custom", (0, 1, 2, 3), SIZES), python)
    permit = json.loads((python.parent / "permit").read_text())
    assert permit == {
        "cards": ["GPU-0000", "GPU-0001", "GPU-0002", "GPU-0003"],
        "driver": "580.95.05",
        "proven": ["custom"],
    }


def test_pcie_ipc_is_asked_for(player: Player, seen: Seen) -> None:
    env = environment(Case("pcie-ipc", (0, 1), SIZES), player, seen)
    assert env["VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"] == "1"


def test_a_rehearsal_sees_no_cards(player: Player, seen: Seen) -> None:
    env = environment(NCCL, player, seen, device="cpu")
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert not [name for name in env if name.startswith("NCCL_")]


def test_a_killed_check_takes_its_ranks_along(player: Player, tmp_path: Path) -> None:
    """The worker itself asks for it; here the real one, which needs no torch to get that far."""
    (tmp_path / "spec.json").write_text("{}")
    code = (
        "import subprocess, sys, os, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import os, time, p2p_check.worker as w;'"
        "'w.end_with({}); print(os.getpid(), flush=True); time.sleep(600)'"
        ".format(os.getpid())], stdout=subprocess.PIPE, text=True)\n"
        "print(p.stdout.readline(), end='', flush=True)\n"
        "time.sleep(600)\n"
    )
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(scripts)},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert not ended(child)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 5
    while not ended(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert ended(child)


def test_scratch_of_a_killed_check_is_swept_and_a_living_ones_is_not(scratch: Path) -> None:
    old, living, young = (scratch / f"rig-p2p-{name}" for name in ("old", "living", "young"))
    for folder in (old, living, young):
        folder.mkdir()
    hour_ago = time.time() - 3600
    for folder in (old, living):
        (folder / "lock").touch()
        os.utime(folder, (hour_ago, hour_ago))
    with (living / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep_scratch()
    assert sorted(p.name for p in scratch.iterdir()) == ["rig-p2p-living", "rig-p2p-young"]
    for folder in (living, young):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def test_the_words_for_a_case() -> None:
    passed = Result(way="copy", cards=(0, 1), size_bytes=1, outcome="passed", gb_per_s=25.0)
    assert in_words([passed]) == "passed, 1 sizes, up to 25.0 GB/s"
    wrong = passed.model_copy(update={"outcome": "wrong", "detail": "zeros"})
    assert in_words([passed, wrong]) == "WRONG at 1 bytes: zeros"
