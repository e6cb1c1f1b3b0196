"""Every block of code in the pages, and how it is known to be right.

A line of a block is a command of ours (held against the real parser), is run by
`test_run_blocks.py`, or stands in `FOREIGN` with the reason why it is not run. A block that is no
shell stands in `SAMPLES` with what reads it. Nothing else may be in a page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import foreign, samples
from .commands import is_ours
from .pages import Code, code_of
from .shell import commands_in, shell_lines


@dataclass(frozen=True)
class Foreign:
    """A kind of command of another program, not run.

    Args:
        start: how it begins, after `python` is put for any Python of the reader's own.
        reason: why no test runs it.
        wrong: says what is wrong with it, "" if nothing; None: only the paths in it are looked at.
    """

    start: str
    reason: str
    wrong: Callable[[tuple[str, ...]], str] | None = None


@dataclass(frozen=True)
class Sample:
    """A block that is no shell, or that no shell could read.

    Args:
        start: how its text begins.
        wrong: says what is wrong with its text, "" if nothing.
        reason: why there is nothing that could read it.
    """

    start: str
    wrong: Callable[[str], str] | None
    reason: str = ""


_GIT = "changes a repository, or publishes"
_PIP = "installs gigabytes; tests/wheel and tests/engine do it with built wheels"
_SYSTEM = "changes the reader's system, as root"
_UNIT = "changes the reader's services; tests/launch/test_supervise.py plays systemd"
_FORMULA = "for a reader; scripts/model_towers.py computes by it, and tests/towers_model hold that"

FOREIGN = (
    Foreign("python -m pip", _PIP, foreign.wrong_pip),
    Foreign("python3 -m", "for a pip that is not run", foreign.wrong_venv),
    Foreign("export", "names the engine that is not there", foreign.wrong_export),
    Foreign("git switch", _GIT, foreign.wrong_git),
    Foreign("git pull", _GIT, foreign.wrong_git),
    Foreign("git tag", _GIT, foreign.wrong_git),
    Foreign("git push", _GIT, foreign.wrong_git),
    Foreign("git clone", _GIT, foreign.wrong_git),
    Foreign("git fetch", _GIT, foreign.wrong_git),
    Foreign("git cherry-pick", _GIT, foreign.wrong_git),
    Foreign("cd build/vllm-", "the tree that `make apply` makes", foreign.wrong_tree),
    Foreign("cd ../..", "back from that tree"),
    Foreign("cd vllm-rig", "the clone of the same line"),
    Foreign("nvidia-smi", "sets a card, as root"),
    Foreign("docker inspect", "needs an image with cards' libraries", foreign.wrong_image),
    Foreign("docker run", "needs an image and cards", foreign.wrong_docker_run),
    Foreign("docker compose", "needs an image and cards", foreign.wrong_compose),
    Foreign("HEALTHCHECK", "an instruction of a Dockerfile", foreign.wrong_healthcheck),
    Foreign("curl", "needs a server; tests/engine ask one", foreign.wrong_curl),
    Foreign("rm -r", "removes what the reader has", foreign.wrong_rm),
    Foreign("printf", "input of the next command"),
    Foreign("tee /etc/", _SYSTEM),
    Foreign("mkdir -p /etc/", _SYSTEM),
    Foreign("loginctl enable-linger", _SYSTEM),
    Foreign("systemctl --user", _UNIT, foreign.wrong_unit),
    Foreign("journalctl --user", _UNIT, foreign.wrong_unit),
    Foreign("scp", "needs a second box", foreign.wrong_scp),
)

SAMPLES = (
    Sample("patches/series ", samples.wrong_paths),
    Sample("CPU offload of", samples.wrong_log),
    Sample("@property", samples.wrong_python),
    Sample("[image]", samples.wrong_image),
    Sample("scripts/serve-4x3090.sh MODEL [", samples.wrong_synopsis),
    Sample("[skip]", samples.wrong_skip),
    Sample("./rig plan MODEL [", samples.wrong_synopsis),
    Sample("VRAM freed per card", None, _FORMULA),
    Sample("visual: 35 units", samples.wrong_log),
    Sample("bytes streamed - B x T", None, _FORMULA),
    Sample("[wsl2]", samples.wrong_ini),
)

# Run by `test_run_blocks.py`, page by page, but for lines with a command of ours or of `FOREIGN`.
# Each is the beginning of a block.
RUN = (
    "cp docker/.env.example",
    'site="$(',
    "git switch main",
    "git clone",
    "sha256sum --check",
    "ssh-keygen -Y sign",
    "ssh-keygen -Y verify",
    "cp scripts/rigs/",
    "mkdir -p ~/.config",
)

_RUNNABLE = ("cat", "cd", "chmod", "cp", "echo", "mkdir", "sha256sum", "ssh-keygen")
_SHELL = ("", "sh", "bash", "console", "shell")


@dataclass
class Judged:
    """What was found out of the blocks of some pages.

    Args:
        unknown: what nothing accounts for.
        wrong: what is not right.
        used: the rows of the tables that a block needs.
        shell: the blocks that a shell must be able to read.
    """

    unknown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    used: set[object] = field(default_factory=set)
    shell: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> list[Code]:
    """The blocks of a page, without its spans."""
    return [code for code in code_of(page) if not code.inline]


def row_of(words: tuple[str, ...]) -> Foreign | None:
    """The row of `FOREIGN` for a command."""
    line = " ".join(words)
    return next((row for row in FOREIGN if line.startswith(row.start)), None)


def row_of_run(code: Code) -> str | None:
    """The row of `RUN` for a block."""
    return next((start for start in RUN if code.text.lstrip().startswith(start)), None)


def lines_to_run(code: Code) -> list[str]:
    """What of a block in `RUN` is run."""
    return [line for line in shell_lines(code.text) if all(map(_may_run, commands_in(line)))]


def _may_run(words: tuple[str, ...]) -> bool:
    """Nothing but known programs, and nothing outside of the home and the folder they are in."""
    known = words[0] in _RUNNABLE or words[0].startswith("site=$(~/")
    return known and row_of(words) is None and not any(w.startswith(("/", "..")) for w in words)


def judge(name: str, code: Code, into: Judged) -> None:
    """Account for one block of the page `name`; `into` gets what is found."""
    text = code.text.strip()
    for sample in SAMPLES:
        if text.startswith(sample.start):
            into.used.add(sample)
            if said := sample.wrong(code.text) if sample.wrong else "":
                into.wrong.append(f"{name}: {sample.start}: {said}")
            return
    if code.language not in _SHELL:
        into.unknown.append(f"{name}: a block of {code.language} without a row in SAMPLES")
        return
    into.shell.append(code.text)
    run = row_of_run(code)
    if run and lines_to_run(code):
        into.used.add(run)
    for words in (words for line in shell_lines(code.text) for words in commands_in(line)):
        row = row_of(words)
        if row:
            _look(name, words, row, into)
        elif not is_ours(words) and not (run and _may_run(words)):
            into.unknown.append(f"{name}: {' '.join(words)}")


def judge_span(name: str, code: Code, into: Judged) -> None:
    """Look at a span in a sentence, if it is a command of `FOREIGN` and not just a name."""
    for words in commands_in(" ".join(code.text.split())):
        row = row_of(words)
        if row and row.start != " ".join(words):
            _look(name, words, row, into)


def _look(name: str, words: tuple[str, ...], row: Foreign, into: Judged) -> None:
    into.used.add(row)
    said = (row.wrong(words) if row.wrong else "") or foreign.wrong_paths(words)
    into.wrong += [f"{name}: {' '.join(words)}: {said}"] if said else []
