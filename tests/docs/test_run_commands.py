"""Commands in the pages are really run: as they stand where they only read, else dry or as help."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .commands import Command, cli, commands_of
from .pages import PAGES, ROOT

# A fail of the box or of the plan is an answer, too; a wrong command line (2) is not.
_ANSWERS = {"doctor": (0, 1), "plan": (0, 1)}
# How the pages name a model.
_MODELS = {"MODEL", "Qwen/Qwen3-VL-8B-Instruct"}
# Files that a page takes as given.
_STAND_INS = {
    "my-box.toml": "scripts/rigs/2x4090.toml",
    "engine.log": "tests/engine_log/logs/two-cards-streamed.txt",
}


def form_to_run(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """The command in a form that reads only, without a network, in seconds; None: there is none.

    A start becomes a dry run with all of its arguments, any other command of `rig` its help.
    """
    first, *rest = words
    if first == "make":
        return words if rest in (["help"], ["pins"]) else None
    if first.startswith("scripts/"):
        return _script(words)
    if not rest:
        return None
    words = ("./rig", *rest)
    if rest[0] == "--python":
        return words if rest[1:] == ["scripts/model_towers.py"] else None
    command, options = rest[0], rest[1:]
    reads = {
        "doctor": not {"--from", "--after", "NAME"} & set(options) or "engine.log" in options,
        "plan": "--config" in options and not {"FILE", "--tp"} & set(options),
        "pins": not options,
        "docs": not options,
    }
    if reads.get(command) or "--help" in options:
        return words
    return ("./rig", command, "--help") if command in cli().commands else None


def _script(words: tuple[str, ...]) -> tuple[str, ...] | None:
    first, *rest = words
    if not (ROOT / first).is_file() or first == "scripts/bench-towers" or ".sh" not in first:
        return None  # a folder, many files, or a program for another Python
    if not first.startswith("scripts/serve"):
        return (first, "--help")
    synopsis = any("|" in word or word.startswith("vLLM") for word in rest)
    if synopsis or not _MODELS & set(rest):
        return (first, "--help")
    return words if "--dry-run" in rest else (*words, "--dry-run")


def _distinct() -> list[Command]:
    found: dict[tuple[str, ...], Command] = {}
    for page in PAGES:
        for command in commands_of(page):
            form = form_to_run(command.words)
            if form is not None:
                found.setdefault(form, Command(command.page, form, command.inline))
    return list(found.values())


SAFE = _distinct()


def test_enough_is_run() -> None:
    programs = {command.words[:2] for command in SAFE}
    assert len(SAFE) >= 40
    assert {("./rig", "doctor"), ("./rig", "plan"), ("./rig", "pins")} <= programs
    assert sum("--dry-run" in command.words for command in SAFE) >= 10


@pytest.mark.parametrize("command", SAFE, ids=str)
def test_it_runs(command: Command, tmp_path: Path) -> None:
    words = [_STAND_INS.get(word, word) for word in command.words]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**inherited, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    answers = (0,) if "--help" in words else _ANSWERS.get(words[1] if words[1:] else "", (0,))
    if "auto" in words and "--dry-run" in words:
        answers = (0, 3)  # a rig that is made of the box needs its cards
    assert done.returncode in answers, said
    assert said.strip()
    assert "Traceback" not in said
