"""Every command of ours that a page shows is one that the real programs take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rig.layout import layout_of_this_checkout
from rig.pins import primary_pin
from rig.series.apply import apply as apply_series

from .commands import Command, cli, commands_of, is_ours, targets, what_is_wrong
from .pages import PAGES, ROOT, name_of
from .shell import commands_in, shell_lines

COMMANDS = [command for page in PAGES for command in commands_of(page)]


def test_commands_are_found() -> None:
    """The checks below would pass on pages in which nothing is found."""
    starts = [" ".join(command.words[:2]) for command in COMMANDS]
    assert len(COMMANDS) > 150
    assert {"./rig doctor", "make apply", "scripts/serve-4x3090.sh MODEL"} <= set(starts)
    assert any(command.words == ("make", "refresh", "verify") for command in COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_taken(page: Path) -> None:
    wrong = [f"{command}: {said}" for command in commands_of(page) if (said := _wrong(command))]
    assert wrong == []


def _wrong(command: Command) -> str:
    return what_is_wrong(command)[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("make no-such-target", "no target"),
        ("make build FLAVOUR=cpu", "no variable"),
        ("./rig doctor --nothing", "No such option"),
        ("./rig nothing", "no command"),
        ("./rig pins remove 0.33.0", "no command"),
        ("./rig plan MODEL --tp many", "valid integer"),
        ("./rig doctor one two", "unexpected extra argument"),
        ("./rig --python scripts/nothing.py", "there is no"),
        ("./rig --python -m no_such_module", "no module"),
        ("scripts/serve-5x3090.sh MODEL", "there is no"),
        ("scripts/ray-join.sh HOST --tensor-parallel-size 2", "does not know"),
        ("scripts/bench-towers --nothing 3", "does not know"),
    ],
)
def test_a_wrong_command_is_seen(words: str, said: str) -> None:
    assert said in _wrong(Command("here", tuple(words.split()), inline=False))


def test_every_command_has_a_row() -> None:
    """In the tables of docs/commands.md, first column: each target and each command of `rig`."""
    lines = (ROOT / "docs" / "commands.md").read_text("utf-8").splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("| ")]
    told = set(re.findall(r"[a-z][a-z0-9-]+", " ".join(rows)))
    assert {*targets(), *cli().commands} - {"", "help"} - told == set()


def test_every_module_of_commands_is_registered() -> None:
    """`python -m rig` has the commands that the pages show."""
    main = (ROOT / "scripts" / "rig" / "__main__.py").read_text()
    modules = sorted(path.stem for path in (ROOT / "scripts" / "rig").glob("cli_*.py"))
    assert [name for name in modules if f"import rig.{name}" not in main] == []


@pytest.mark.network
def test_every_option_of_vllm_is_one() -> None:
    """By the text of the pinned release with the series on it: what its parsers are made of."""
    layout = layout_of_this_checkout()
    tree = apply_series(layout, primary_pin(layout)).folder
    known = _options_of(tree / "vllm")
    assert {"--offload-towers", "--tensor-parallel-size", "--api-key", "-tp"} <= known
    wrong = []
    for command in COMMANDS:
        for option in what_is_wrong(command)[1]:
            if option not in known:
                wrong.append(f"{command}: {option}")
    assert wrong == []


def _options_of(package: Path) -> set[str]:
    parsers = [package / "engine" / "arg_utils.py", *(package / "entrypoints").rglob("*.py")]
    known = set()
    for path in parsers:
        text = path.read_text()
        known |= set(re.findall(r'"(--?[a-z][\w-]*)"', text))
        if path.name == "cli_args.py":  # options made from the fields of a class
            fields = re.findall(r"^    ([a-z][a-z_]+):", text, re.MULTILINE)
            known |= {f"--{field.replace('_', '-')}" for field in fields}
    return known


MADE = sorted({command.words for command in COMMANDS if command.words[0] == "make"})


@pytest.mark.parametrize("words", MADE, ids=" ".join)
def test_what_make_would_run_is_taken(words: tuple[str, ...]) -> None:
    """`make -n`: nothing is run; the lines that it would run are held against the real programs."""
    filled = [re.sub(r"=\.\.$", "=0.32.0", word) for word in words]
    done = subprocess.run(
        ["make", "-n", *filled[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    ours = [w for n in shell_lines(done.stdout) for w in commands_in(n) if is_ours(w)]
    assert [said for w in ours if (said := _wrong(Command("make", w, inline=False)))] == []
    assert ours or words in {("make",), ("make", "help")}  # which only print
