"""Runs of a worker that is a few lines of Python: it hangs, crashes, and talks."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

import pytest

from rig.anchors.answers import CANNOT, CLEAN
from rig.anchors.pool import WorkerCommand
from rig.anchors.run import catch, report, worker_command
from rig.errors import RigError

WORKER = """
    import json, os, signal, sys, time
    print(json.dumps({"vllm": "9.9", "unusable_recipes": {"old": "ImportError"}}), flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name == "?":
            known = ["Good", "Hangs", "Crashes", "Exits", "Last"]
            answer = dict.fromkeys(known, "") | {"Unread": "no module"}
        elif name == "Hangs":
            time.sleep(600)
        elif name == "Crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif name == "Exits":
            sys.exit(3)
        else:
            answer = {"architecture": name, "verdict": "clean", "pid": os.getpid()}
        print(json.dumps(answer), flush=True)
"""


def worker(tmp_path: Path, text: str = WORKER) -> WorkerCommand:
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(text), "utf-8")
    command = [sys.executable, "-u", str(script)]
    return WorkerCommand(command, {}, tmp_path / "log", ready_seconds=60, answer_seconds=3)


def test_a_crash_and_a_hang_are_results_and_the_rest_goes_on(tmp_path: Path) -> None:
    began = time.monotonic()
    run = catch(worker(tmp_path))
    assert time.monotonic() - began < 60
    found = {v.architecture: (v.verdict, v.reason) for v in run.verdicts}
    assert found == {
        "Crashes": (CANNOT, "crashes: ended by SIGSEGV"),
        "Exits": (CANNOT, "crashes: ended with status 3"),
        "Good": (CLEAN, ""),
        "Hangs": (CANNOT, "hangs: no answer within 3 s"),
        "Last": (CLEAN, ""),
        "Unread": (CANNOT, "no module"),
    }
    pids = {a["architecture"]: a["pid"] for a in run.raw if "pid" in a}
    assert pids["Good"] != pids["Last"]  # the one that hung is not asked again
    said = list(report(run))
    assert "recipes of old are left out: ImportError" in said
    assert said[-1].startswith("vLLM 9.9: 6 multimodal architectures: 2 clean, 0 with anchors")


def test_one_worker_serves_as_long_as_it_lives(tmp_path: Path) -> None:
    run = catch(worker(tmp_path), ["Good", "Last"])
    assert len({a["pid"] for a in run.raw}) == 1


def test_a_name_that_no_registry_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="no multimodal architecture") as caught:
        catch(worker(tmp_path), ["Goood"])
    assert "Good" in str(caught.value.next_step)


def test_a_worker_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="does not start: it crashes: ended with status 1") as caught:
        catch(worker(tmp_path, "raise ImportError('no vllm here')"))
    assert "no vllm here" in str(caught.value)


def test_a_worker_gets_nothing_from_the_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cuda")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    how = worker_command(Path("python"), tmp_path, tmp_path / "tree", tmp_path / "log")
    assert "VLLM_TARGET_DEVICE" not in how.env and "PYTHONHOME" not in how.env
    assert how.env["HF_HUB_OFFLINE"] == "1"
    assert how.env["PYTHONPATH"].split(":")[0] == str(tmp_path / "tree")
