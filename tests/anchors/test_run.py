"""Runs of a worker that is a few lines of Python: it hangs, crashes, and talks."""

from __future__ import annotations

import sys
import textwrap
import time
from dataclasses import replace
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
            known = ["Good", "Hangs", "Crashes", "Exits", "Last", "Unread", "Text", "Aborts"]
            answer = {"architectures": known}
        elif name == "?Aborts":
            os.abort()
        elif name.startswith("?"):
            why_not = "no module" if name == "?Unread" else ""
            answer = {"multimodal": name != "?Text", "why_not": why_not}
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
        "Aborts": (CANNOT, "crashes: ended by SIGABRT"),
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
    assert said[-1].startswith("vLLM 9.9: 7 multimodal architectures: 2 clean, 0 with anchors")


def test_one_worker_serves_as_long_as_it_lives(tmp_path: Path) -> None:
    run = catch(worker(tmp_path), ["Good", "Last"])
    assert len({a["pid"] for a in run.raw}) == 1


def test_a_name_that_no_registry_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="no multimodal architecture") as caught:
        catch(worker(tmp_path), ["goood", "las"])
    assert "Good" in str(caught.value.next_step) and "Last" in str(caught.value.next_step)
    with pytest.raises(RigError, match="no multimodal architecture of this vLLM: Text"):
        catch(worker(tmp_path), ["Text"])


def test_another_vllm_than_the_one_to_judge_is_refused(tmp_path: Path) -> None:
    text = WORKER.replace('"vllm": "9.9"', '"file": "/elsewhere/vllm/__init__.py", "vllm": "9.9"')
    how = replace(worker(tmp_path, text), package=tmp_path)
    with pytest.raises(RigError, match="another vLLM was imported"):
        catch(how)
    with pytest.raises(RigError, match="':' in a path"):
        worker_command(Path("python"), tmp_path, tmp_path / "a:b", tmp_path / "log")


def test_what_a_model_has_started_ends_with_its_worker(tmp_path: Path) -> None:
    text = """
        import json, subprocess, sys, time
        print(json.dumps({"vllm": "9.9", "unusable_recipes": {}}), flush=True)
        for line in sys.stdin:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open(sys.argv[1], "w").write(str(child.pid))
            time.sleep(600)
    """
    how = worker(tmp_path, text)
    pid_file = tmp_path / "pid"
    how = replace(how, command=[*how.command, str(pid_file)], ready_seconds=3)
    with pytest.raises(RigError, match="hangs"):
        catch(how)
    deadline = time.monotonic() + 20
    while _runs(int(pid_file.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
