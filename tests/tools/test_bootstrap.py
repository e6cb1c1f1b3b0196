"""`./rig` itself: whatever folder it is called from, and whatever make is told."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rig.cli import app
from rig.launch.engine_environment import RAY_VERSION
from rig.layout import Layout

ROOT = Path(__file__).resolve().parents[2]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_files_of_the_folder_it_is_called_from_are_not_imported(tmp_path: Path) -> None:
    """vLLM's tree has folders with a logging.py, an inspect.py, a typing of its own."""
    for name in ("logging", "typer", "inspect", "rig"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    done = run([str(ROOT / "rig"), "pins"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "primary" in done.stdout


def test_it_can_be_linked_to(tmp_path: Path) -> None:
    (tmp_path / "rig").symlink_to(ROOT / "rig")
    done = run([str(tmp_path / "rig"), "pins"], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [["FLAVOUR=cpu"], ["VLLM=0.32.0", "FLAVOR=cpu", "VERSION=1"], ["vllm=0.32.0"]]
)
def test_make_refuses_a_variable_that_it_does_not_know(arguments: list[str]) -> None:
    done = run(["make", "-n", "build", *arguments], ROOT)
    assert done.returncode == 2
    assert "unknown variable" in done.stderr


def test_make_passes_on_what_it_knows() -> None:
    done = run(["make", "-n", "-j2", "build", "VLLM=0.32.0", "FLAVOR=cpu"], ROOT)
    assert "rig build 0.32.0 --flavor cpu --from wheel" in done.stdout


def test_every_target_runs_although_folders_have_such_names() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    assert ".PHONY: $(TARGETS)\n" in text
    listed = next(x for x in text.splitlines() if x.startswith("TARGETS =")).split()[2:]
    assert sorted(rules(text)) == sorted(listed)


def rules(text: str) -> list[str]:
    return re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE)


def test_help_names_every_target_and_every_variable() -> None:
    text = (ROOT / "Makefile").read_text()
    known = next(x for x in text.splitlines() if x.startswith("KNOWN =")).split()[2:]
    said = run(["make", "help"], ROOT).stdout.splitlines()
    described = {re.split(r"[ =]", line)[0] for line in said if re.match(r"\S+ {2,}\S", line)}
    assert set(rules(text)) | set(known) <= described
    assert max(map(len, said)) <= 100


@pytest.mark.parametrize("target", ["aply", "tests", "README.md"])  # two of them exist
def test_make_refuses_a_target_that_it_does_not_know(target: str) -> None:
    done = run(["make", target], ROOT)
    assert done.returncode == 2
    assert f"unknown target {target}: `make help` lists them" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("build FLAVOR=rocm", "FLAVOR is cuda or cpu, not 'rocm'"),
        ("build FLAVOR=", "FLAVOR is cuda or cpu, not ''"),
        ("rehearse RANKS=two", "RANKS is 1, 2 or 4, not 'two'"),
        ("forecast", "make forecast SOURCE="),
        ("serve", "make serve MODEL="),
        ("rebase EDIT=0401", "make rebase TO=0.34.0 EDIT=0401"),
    ],
)
def test_make_says_which_variable_is_meant(words: str, said: str) -> None:
    done = run(["make", *words.split()], ROOT)
    assert done.returncode == 2
    assert said in done.stderr


def test_edit_is_passed_on_also_when_a_rebase_goes_on() -> None:
    done = run(["make", "-n", "rebase-continue", "EDIT=0401 0402"], ROOT)
    assert "--continue --edit 0401 --edit 0402" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--continue --dry-run", "--dry-run go with a release"),
        ("--abort --edit 0401", "--edit goes with"),
        ("--continue --why because", "--why goes with --drop"),
    ],
)
def test_no_option_of_rebase_is_ignored(words: str, said: str) -> None:
    done = run(["./rig", "rebase", *words.split()], ROOT)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("build --flavor rocm", "error: invalid value for '--flavor': 'rocm' is not one of"),
        ("rehearse --ranks two", "error: invalid value for '--ranks': it must be a valid integer"),
        ("pins add", "error: missing argument 'version'"),
        ("plna", "error: no such command 'plna'"),
        ("--nope", "error: no such option: --nope"),
    ],
)
def test_wrong_usage_is_said_in_plain_lines(words: str, said: str) -> None:
    done = run(["./rig", *words.split()], ROOT)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(said)
    assert re.fullmatch(r"  next:  \./rig .*--help", second)


@pytest.mark.parametrize(("words", "status"), [("", 2), ("--help", 0), ("build --help", 0)])
def test_help_names_the_program_as_it_is_typed(words: str, status: int) -> None:
    done = run(["./rig", *words.split()], ROOT)
    assert done.returncode == status
    assert "Usage: ./rig" in done.stdout
    assert done.stderr == ""


def test_messages_name_commands_as_they_are_typed() -> None:
    """`rig plan` does not run from a checkout, `./rig plan` does. Docstrings may be shorter."""
    bare = re.compile(r"((?<!does )`|next: |: |^|, or )rig [a-z][\w-]*( [A-Z]|`)")
    wrong = []
    for path in sorted((ROOT / "scripts" / "rig").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docstrings
                and bare.search(node.value)
                and not node.value.startswith("# Written by")  # in each lock
            ):
                wrong.append(f"{path.name}:{node.lineno}: {node.value}")
    assert wrong == []


def test_a_path_to_be_typed_holds_where_the_command_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(root=tmp_path, cache=tmp_path / "cache")
    assert layout.typed(layout.dist / "a.whl") == str(tmp_path / "dist/a.whl")
    monkeypatch.chdir(tmp_path)
    assert layout.typed(layout.dist / "a.whl") == "dist/a.whl"


@pytest.mark.parametrize("flavour", ["cuda", "cpu"])
def test_the_step_after_build_installs_what_serve_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    path = ROOT / "dist" / "vllm-1+rig.1-any.whl"
    wheel = SimpleNamespace(path=path, sha256="0" * 64, patched=(), seconds=0.1)
    monkeypatch.setattr("rig.cli.built_wheel", lambda *_: wheel)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["build", "--flavor", flavour])
    step = done.stdout.splitlines()[-1].removeprefix("  next: ")
    assert shlex.split(step) == [
        *("python", "-m", "pip", "install", str(path), f"ray=={RAY_VERSION}")
    ]


@pytest.mark.parametrize("name", ["no-such-python", "false"])
def test_a_python_that_is_named_and_unfit_is_refused(tmp_path: Path, name: str) -> None:
    """Not exchanged for another one in silence; make passes it on."""
    copy = tmp_path / "copy"
    (copy / "requirements").mkdir(parents=True)
    shutil.copytree(ROOT / "scripts", copy / "scripts", ignore=shutil.ignore_patterns("rig"))
    for file in ("requirements/tools.txt", "Makefile", "rig"):
        shutil.copy(ROOT / file, copy / file)
    done = run(["make", f"PYTHON={name}", "pins"], copy)
    assert done.returncode == 2
    assert f"Python 3.11 or newer was not found: PYTHON is {name}" in done.stderr


def test_a_checkout_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "requirements").mkdir(parents=True)
    (copy / ".tools-env.lock").mkdir()  # root may write anywhere: a folder in the way stops it too
    shutil.copytree(ROOT / "scripts", copy / "scripts", ignore=shutil.ignore_patterns("rig"))
    shutil.copy(ROOT / "requirements/tools.txt", copy / "requirements")
    done = run([str(copy / "scripts/tools-env.sh"), "pins"], tmp_path)
    assert done.returncode == 1
    assert "is not writable" in done.stderr
