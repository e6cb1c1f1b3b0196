"""The command lines in the pages that are ours: found, and held against the real programs."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import typer
from typer.core import TyperGroup

from rig.launch.cluster_line import HEAD_HELP, JOIN_HELP
from rig.launch.command_line import HELP

from .pages import ROOT, Code, code_of, name_of
from .shell import commands_in, shell_lines

# typer brings its own click, and shows this class of it alone.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
assert USAGE_ERROR.__name__ == "UsageError"
_STARTERS = ("make", "./rig", "rig", "vllm")
_HELPS = {"serve": HELP, "ray-head": HEAD_HELP + HELP, "ray-join": JOIN_HELP}
_PLACEHOLDERS = {"N": "1", "NNNN": "0101", "SECONDS": "1"}


@dataclass(frozen=True)
class Command:
    """One command: the page that shows it, and its words."""

    page: str
    words: tuple[str, ...]
    inline: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def commands_of(path: Path) -> list[Command]:
    """Every command of ours in a page."""
    return [
        Command(name_of(path), words, code.inline)
        for code in code_of(path)
        if code.language in ("", "sh", "bash", "console", "shell")
        for line in _lines(code)
        for words in _ours(line)
    ]


def is_ours(words: tuple[str, ...]) -> bool:
    """Whether a command is a program of this repository, or the engine's own."""
    return words[0] in _STARTERS or words[0].startswith("scripts/")


def _lines(code: Code) -> list[str]:
    return [" ".join(code.text.split())] if code.inline else shell_lines(code.text)


def _ours(line: str) -> list[tuple[str, ...]]:
    return [w for w in commands_in(line) if is_ours(w) and w != ("rig",)]


@cache
def targets() -> dict[str, list[str]]:
    """The Makefile's targets, and under "" its variables."""
    text = (ROOT / "Makefile").read_text()
    named = re.findall(r"^([a-z][\w -]*):(?!=)", text, re.MULTILINE)
    known = re.search(r"^KNOWN = (.+)$", text, re.MULTILINE)
    assert known
    return {**{t: [] for names in named for t in names.split()}, "": known[1].split()}


@cache
def cli() -> TyperGroup:
    """The whole command line, as `python -m rig` has it."""
    for module in sorted((ROOT / "scripts" / "rig").glob("cli*.py")):
        importlib.import_module(f"rig.{module.stem}")
    from rig.cli import app

    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def what_is_wrong(command: Command) -> tuple[str, list[str]]:
    """What the real program would refuse ("" if nothing), and the options left to vLLM's parser."""
    first, *rest = command.words
    if first == "make":
        return _wrong_make(rest), []
    if first == "vllm":
        return _wrong_vllm(rest)
    if first.startswith("scripts/"):
        if not list(ROOT.glob(first)):
            return f"there is no {first}", []
        helper = Path(first).stem
        if helper in _HELPS or helper.startswith("serve"):
            return _wrong_serve(helper if helper in _HELPS else "serve", rest)
        return _wrong_script(first, rest), []
    return _wrong_rig(rest)


def _wrong_make(words: list[str]) -> str:
    for word in words:
        name, equals, _ = word.partition("=")
        if equals and name not in targets()[""]:
            return f"make knows no variable {name}"
        if not equals and name not in targets():
            return f"make has no target {name}"
    return ""


def _wrong_script(script: str, words: list[str]) -> str:
    """A script of ours with a parser of its own: its source names the option."""
    text = "".join(path.read_text() for path in _sources(script))
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    strangers = [option for option in options if f'"{option}"' not in text and option != "--help"]
    return f"{script} does not know {strangers[0]}" if strangers else ""


def _sources(script: str) -> list[Path]:
    folder = ROOT / script.replace("-", "_")
    return [path for path in (ROOT / script, *folder.glob("*.py")) if path.is_file()]


def _wrong_vllm(words: list[str]) -> tuple[str, list[str]]:
    """The engine's own line: all of its options are for vLLM's parser."""
    return "", [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]


def _wrong_serve(command: str, words: list[str]) -> tuple[str, list[str]]:
    ours = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", _HELPS[command]))
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    left = [option for option in options if option not in ours]
    if command == "ray-join" and left:
        return f"ray-join does not know {left[0]}", []
    return "", left


def _wrong_rig(words: list[str]) -> tuple[str, list[str]]:
    if not words or words == ["--help"]:
        return "", []
    if words[0] == "--python":
        return _wrong_python(words[1:]), []
    name, *rest = words
    command = cli().commands.get(name)
    if command is None:
        return f"rig has no command {name}", []
    if name in _HELPS:
        return _wrong_serve(name, rest)
    rest = [_PLACEHOLDERS.get(word, word) for word in rest]
    if isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        below = command.commands.get(rest[0])
        if below is None:
            return f"rig {name} has no command {rest[0]}", []
        command, rest = below, rest[1:]
    try:
        # Nothing runs: this reads the words, as the program does, and refuses what it refuses.
        command.make_context(name, list(rest))
    except typer.Exit:  # --help
        pass
    except USAGE_ERROR as error:
        # A sentence that names a command need not give its arguments.
        said = error.format_message()  # type: ignore[attr-defined]
        if not said.startswith("Missing argument"):
            return said, []
    return "", []


def _wrong_python(words: list[str]) -> str:
    if words[:1] == ["-m"]:
        module = words[1]
        return "" if importlib.util.find_spec(module) else f"the tools have no module {module}"
    return "" if (ROOT / words[0]).is_file() else f"there is no {words[0]}"
