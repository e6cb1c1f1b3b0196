"""The child process that asks NVML: its time limit, and whatever it may print."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.box import nvml_child
from rig.box.nvml import NvmlFacts
from rig.box.nvml_child import read_nvml_in_child


def program(tmp_path: Path, text: str) -> tuple[str, str]:
    path = tmp_path / "child.py"
    path.write_text(text)
    return sys.executable, str(path)


def test_what_it_prints_is_what_is_read(tmp_path: Path) -> None:
    told = NvmlFacts(cards=(), driver_version="1.2", notes=("one",))
    assert read_nvml_in_child(program(tmp_path, f"print({told.model_dump_json()!r})")) == told


def test_a_driver_that_hangs_is_given_up_and_the_child_is_gone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    text = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    before = time.monotonic()
    facts = read_nvml_in_child(program(tmp_path, text), limit_s=1.0)
    assert time.monotonic() - before < 5
    assert facts.cards is None
    assert facts.notes == ("the NVIDIA driver did not answer within 1 s",)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit('the library is broken')", "exit 1, the library is broken"),
        ("import os; os.abort()", "exit -6, "),
        ("print('{\"cards\": 3}')", "exit 0, it said nothing"),
        ("import sys; sys.stdout.buffer.write(bytes(range(256)))", "exit 0, "),
    ],
)
def test_a_child_that_fails_is_a_note(tmp_path: Path, text: str, said: str) -> None:
    facts = read_nvml_in_child(program(tmp_path, text))
    assert facts.cards is None
    (note,) = facts.notes
    assert note.startswith("NVML was not read: ")
    assert said in note


def test_a_program_that_is_not_there_is_a_note() -> None:
    (note,) = read_nvml_in_child(("/nonexistent/python",)).notes
    assert note == "NVML was not read: No such file or directory"


def test_without_the_library_no_child_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_child, "LIBRARY", "libnot-there.so.1")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a child was started"))
    (note,) = read_nvml_in_child().notes
    assert note.startswith("no NVIDIA driver answers: libnot-there.so.1: cannot open shared object")


def test_with_a_library_the_child_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_child, "LIBRARY", "libc.so.6")
    monkeypatch.setattr(nvml_child, "child_command", lambda: (sys.executable, "-c", "print('{}')"))
    assert read_nvml_in_child() == NvmlFacts()
