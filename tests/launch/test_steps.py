"""The steps before a start, in their order: what each refuses, and with which status."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from rig.box.facts import Box, Host
from rig.errors import RigError
from rig.launch import command
from rig.launch.command import serve_main
from rig.launch.plan import ServeOptions, ServePlan
from rig.launch.ports import find_free_port
from rig.memory.result import Advice, MemoryPlan
from rig.options import cache, in_engine
from rig.options.cache import key_of
from rig.options.table import table_from_engine

from .checks import alive
from .imagined import BUSY, FREE, HOST, NO_SHM, cards, have_plan, see
from .rules.row import FOUR, PERMIT, box, plan, verdict
from .test_options import parser, provenance


@pytest.fixture
def argv(options: ServeOptions, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command line for four cards on the fakes; nothing is installed as a rig build."""
    monkeypatch.setattr(command, "require_rig_build", lambda _: None)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return [
        *("--rig", "4x3090", "some/model", "--python", str(options.python)),
        *("--log-folder", str(options.log_folder), "--port", str(find_free_port())),
    ]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServePlan]:
    """The plans that would be served; serving itself ends at once, as by Ctrl-C."""
    plans: list[ServePlan] = []

    @contextmanager
    def serving(plan: ServePlan, **_: object) -> Iterator[None]:
        plans.append(plan)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(command, "serving", serving)
    return plans


def test_what_was_seen_proven_and_planned_is_what_is_served(
    argv: list[str], served: list[ServePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, cards(), verdict(("nccl-p2p", FOUR), ("custom", FOUR)))
    have_plan(monkeypatch, plan(4, flags=[Advice(flag="--max-model-len", value="4096")]))
    assert serve_main([*argv, "--custom-all-reduce-pcie"]) == 0
    (made,) = served
    assert made.cards == FOUR
    assert made.engine_environment["NCCL_P2P_LEVEL"] == "PHB"
    assert "--max-model-len" in made.vllm_arguments
    permit = Path(made.engine_environment[PERMIT])
    assert json.loads(permit.read_text())["driver"] == "580.1"
    assert stat.S_IMODE(permit.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "seen_box, said",
    [
        (cards(2), "4 GPUs are needed and 2 are here"),
        (Box(source="x", cards=(), host=Host(**HOST)), "4 GPUs are needed and 0 are here"),
        (Box(source="x", cards=None, host=Host(**HOST)), "cards-seen"),
        (cards(**BUSY), "cards-idle"),
        (cards(memory_free_bytes=1 << 30), "cards-drained"),
        (cards().model_copy(update={"host": NO_SHM}), "shm"),
    ],
    ids=["too few", "none", "no driver", "in use", "not drained", "no shared memory"],
)
def test_a_box_that_is_not_fit_is_3_and_nothing_starts(
    argv: list[str],
    served: list[ServePlan],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seen_box: Box,
    said: str,
) -> None:
    see(monkeypatch, seen_box)
    monkeypatch.setattr("rig.launch.gate_step.wait_for_drained", lambda *_: [])
    have_plan(monkeypatch, plan(4))
    assert serve_main(argv) == 3
    assert said in capsys.readouterr().err
    assert not served


def test_auto_without_cards_is_3(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    see(monkeypatch, Box(source="x", cards=None))
    assert serve_main(["--rig", "auto", *argv[2:]]) == 3
    assert "auto" in capsys.readouterr().err


def test_auto_is_what_was_seen(
    argv: list[str], served: list[ServePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, cards(2, name="NVIDIA GeForce RTX 3090"))
    assert serve_main(["--rig", "auto", *argv[2:], "--no-plan"]) == 0
    assert served[0].devices == 2


def test_a_second_serve_takes_the_cards_that_are_free(
    argv: list[str], served: list[ServePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    each = {i: BUSY if i < 4 else FREE for i in range(8)}
    see(monkeypatch, box(8, cards=each, **HOST))
    assert serve_main([*argv, "--no-plan"]) == 0
    assert served[0].cards == (4, 5, 6, 7)
    assert served[0].engine_environment["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"


def test_a_model_that_does_not_fit_is_4(
    argv: list[str],
    served: list[ServePlan],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    see(monkeypatch, cards())
    less = Advice(flag="--max-model-len", value="8192", why="a shorter context")
    have_plan(monkeypatch, plan(4).model_copy(update={"fits": False, "advice": (less,)}))
    assert serve_main(argv) == 4
    said = capsys.readouterr().err
    assert "does not fit" in said and "--max-model-len 8192: a shorter context" in said
    assert not served
    assert serve_main([*argv, "--no-plan"]) == 0
    assert "assumed: the model fits: --no-plan" in capsys.readouterr().err


def test_sizes_that_the_model_cannot_have_are_2(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, cards())
    have_plan(monkeypatch, RigError("28 heads do not divide by 3"))
    assert serve_main(argv) == 2


def test_a_folder_without_weights_is_2(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    for config in (None, "{}"):
        if config is not None:
            (tmp_path / "model" / "config.json").write_text(config)
        argv[2] = str(tmp_path / "model")
        assert serve_main([*argv, "--rehearse"]) == 2
        assert "the folder holds no" in capsys.readouterr().err


def test_pinned_memory_that_is_not_there_is_3(
    argv: list[str],
    served: list[ServePlan],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    see(monkeypatch, cards())
    have_plan(monkeypatch, plan(4).model_copy(update={"host_pinned": 100 << 30}))
    assert serve_main(argv) == 3
    assert "host-memory" in capsys.readouterr().err
    assert not served


@pytest.fixture
def known_options(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rig build is installed, and vLLM has been asked for its options."""
    built = provenance()
    monkeypatch.setattr(command, "require_rig_build", lambda _: SimpleNamespace(provenance=built))
    monkeypatch.setenv("VLLM_RIG_CACHE", str(tmp_path))
    table = table_from_engine(built.version, in_engine.table(parser())["options"])
    (tmp_path / "options").mkdir()
    kept = tmp_path / "options" / f"{key_of(built)}.json"
    kept.write_text(table.model_dump_json())


@pytest.mark.usefixtures("known_options")
def test_a_beginning_of_an_options_name_counts_for_what_is_decided(
    argv: list[str], served: list[ServePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, cards())
    assert serve_main([*argv, "--no-plan", "--te", "2"]) == 0
    (made,) = served
    assert made.devices == made.tensor_parallel_size == 2
    assert made.vllm_arguments[-2:] == ("--tensor-parallel-size", "2")
    assert made.vllm_arguments.count("--tensor-parallel-size") == 1


@pytest.mark.usefixtures("known_options")
def test_an_option_that_vllm_does_not_know_is_2_before_anything_is_looked_at(
    argv: list[str], seen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*argv, "--rehearse", "--no-plan"]
    assert serve_main([*argv, "--enforce-egar"]) == 2
    assert "--enforce-eager" in capsys.readouterr().err
    assert serve_main([*argv, "--dtype", "float61"]) == 2
    assert "nearest: float16" in capsys.readouterr().err
    assert not list(seen.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_vllm_is_asked_for_its_options_leaves_nothing(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    told = tmp_path / "pid"
    slow = tmp_path / "slow.py"
    slow.write_text(
        f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(cache, "_IN_ENGINE", slow)
    monkeypatch.setenv("VLLM_RIG_CACHE", str(tmp_path))
    built = SimpleNamespace(provenance=provenance())
    monkeypatch.setattr(command, "require_rig_build", lambda _: built)

    def signal_when_it_runs() -> None:
        while not told.exists() or not told.read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=signal_when_it_runs, daemon=True).start()
    before = signal.getsignal(number)
    assert serve_main([*argv, "--rehearse"]) == 0
    assert not alive(int(told.read_text()))
    assert signal.getsignal(number) is before


def test_an_engine_that_is_lost_while_serving_is_5(
    argv: list[str],
    runtime: Path,
    seen: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    assert serve_main([*argv, "--rehearse", "--no-plan"]) == 5
    assert "the engine ended (exit code 3)" in capsys.readouterr().err
    assert list(runtime.iterdir()) == []


def test_an_engine_that_does_not_start_is_1(
    argv: list[str], runtime: Path, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "crash")
    assert serve_main([*argv, "--rehearse", "--no-plan"]) == 1


def test_a_dry_run_needs_no_cards_no_network_and_no_model(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", no_network)
    see(monkeypatch, Box(source="x", cards=None))
    argv[2] = "nobody/has-this-model"
    assert serve_main([*argv, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "# assumed: the model fits" in said
    assert "# assumed: vLLM takes these arguments" in said
    assert "# assumed: the cards are those of the rig file 4x3090" in said
    assert "export NCCL_P2P_DISABLE=1" in said
    argv[2] = "./no/such/folder"
    assert serve_main([*argv, "--dry-run"]) == 0
    see(monkeypatch, cards(2))
    assert serve_main([*argv, "--dry-run"]) == 0
    assert "# assumed: the box will have them" in capsys.readouterr().out


def test_a_dry_run_plans_the_cards_that_would_serve(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned: list[Box] = []

    def plan_of_memory(_: object, rig: object, box: Box, options: object) -> MemoryPlan:
        planned.append(box)
        return plan(2)

    see(monkeypatch, box(4, cards={0: BUSY, 1: FREE, 2: BUSY, 3: FREE}, **HOST))
    have_plan(monkeypatch, plan(2))
    monkeypatch.setattr("rig.launch.planning.plan_of_memory", plan_of_memory)
    assert serve_main([*argv, "--rig", "2x3090", "--dry-run"]) == 0
    assert "export CUDA_VISIBLE_DEVICES=1,3" in capsys.readouterr().out
    assert [[card.index for card in seen.cards or ()] for seen in planned] == [[1, 3]]


def test_cards_that_only_the_plan_chose_are_examined_as_well(
    argv: list[str], served: list[ServePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four are chosen first; the plan wants two, and then another pair may be the best."""
    examined: list[tuple[int, ...] | None] = []

    def heed(*known: object) -> list[str]:
        examined.extend(made.cards for made in known if isinstance(made, ServePlan))
        return []

    def choose(_: Box, needed: int) -> tuple[int, ...]:
        return FOUR if needed == 4 else (0, 4)

    monkeypatch.setattr("rig.launch.gate_step.heed_doctor", heed)
    see(monkeypatch, cards(6))
    have_plan(monkeypatch, plan(2, idle=2))
    monkeypatch.setattr("rig.launch.decide.layout._choose", choose)
    assert serve_main(argv) == 0
    assert examined == [(0, 1, 2, 3), (0, 4)]


def test_a_dry_run_prints_what_is_proven_here(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    see(monkeypatch, cards(), verdict(("custom", FOUR)))
    assert serve_main([*argv, "--dry-run", "--custom-all-reduce-pcie"]) == 0
    said = capsys.readouterr().out
    assert f"export {PERMIT}=" in said
    assert "umask 077; printf %s" in said
    assert "--disable-custom-all-reduce is not set by us: custom all-reduce stays on" in said
