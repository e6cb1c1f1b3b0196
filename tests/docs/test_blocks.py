"""Each block of code in the pages is accounted for: run, held against a parser, or in a table."""

from __future__ import annotations

import re
import subprocess

import pytest

from . import foreign, samples
from .blocks import (
    FOREIGN,
    RUN,
    SAMPLES,
    Judged,
    blocks_of,
    judge,
    judge_span,
    lines_to_run,
    row_of_run,
)
from .pages import PAGES, Code, code_of, name_of
from .shell import commands_in, shell_lines


def _judged(text: str, language: str = "") -> Judged:
    judged = Judged()
    judge("docs/here.md", Code(text, inline=False, language=language), judged)
    return judged


@pytest.fixture(scope="module")
def all_pages() -> Judged:
    judged = Judged()
    for page in PAGES:
        for code in code_of(page):
            (judge_span if code.inline else judge)(name_of(page), code, judged)
    return judged


def test_no_block_is_passed_over(all_pages: Judged) -> None:
    """What stands here needs a row in tests/docs/blocks.py: run it, or say why not."""
    assert all_pages.unknown == []


def test_what_is_not_run_is_right_as_far_as_can_be_seen(all_pages: Judged) -> None:
    assert all_pages.wrong == []


def test_each_row_is_needed(all_pages: Judged) -> None:
    rows: list[object] = [*FOREIGN, *SAMPLES, *RUN]
    assert [row for row in rows if row not in all_pages.used] == []
    assert all(row.reason for row in FOREIGN)
    assert all(row.wrong or row.reason for row in SAMPLES)


def test_a_shell_can_read_each_block_of_shell(all_pages: Judged) -> None:
    assert len(all_pages.shell) > 40
    wrong = [(text, said) for text in all_pages.shell if (said := _syntax(text))]
    assert wrong == []
    assert _syntax("echo 'a")


def _syntax(text: str) -> str:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=20)
    return done.stderr


def test_versions_of_ours_are_those_of_today() -> None:
    """Any `0.33.0+rig.4` in a block is a pin's, at the revision of patches/revision.

    A span in a sentence may speak of another one, as of the next.
    """
    found = [
        (name_of(page), version)
        for page in PAGES
        for code in blocks_of(page)
        for version in re.findall(r"\d+\.\d+\.\d+[+-]rig\.\d+", code.text)
    ]
    assert len(found) > 10
    known = set(foreign.releases().values())
    assert [(page, v) for page, v in found if v.replace("-rig", "+rig") not in known] == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("wget http://127.0.0.1:8000/health", ""),
        ("make apply | grep x", "sh"),
        ("podman run image", "bash"),
        ("sudo apt-get install git", "console"),
        ("key: value", "yaml"),
        ("[table]", ""),
        ("a = 1", "python"),
        ("make apply && reboot", ""),
        ("make apply >log; reboot", ""),
        ("cat <<END\nreboot\nEND\nhalt", ""),
    ],
)
def test_what_nobody_accounts_for_is_seen(text: str, language: str) -> None:
    assert _judged(text, language).unknown


@pytest.mark.parametrize(
    "text",
    [
        "python -m pip install --nothing x",
        'python -m pip install "ray==2.59.0"',
        "~/engine/bin/python -m pip install dist/vllm-0.33.0+rig.999-*x86_64.whl",
        f"python -m pip install dist/vllm-{next(iter(foreign.releases().values()))}-*.whl",
        "export VLLM_RIG_PYTHN=~/engine/bin/python",
        "python -m pip install -c requirements/nothing.txt x",
        "python3 -m vnv ~/engine",
        "python3 -m venv",
        "git switch --nothing main",
        "git tag --annotate v0.33.0+rig.999",
        "cd build/vllm-0.1.0",
        "git cherry-pick --nothing a",
        "curl http://example.org/version",
        "curl localhost:8000/nothing-served",
        "docker inspect vllm-rig:0.33.0-rig.999-cuda",
        "docker run --rm vllm-rig:latest",
        "docker run --privileged vllm-rig:latest",
        "docker run -e NOTHING_KNOWN=1 image",
        "docker run -p 8000:8000 image",
        "docker run -v a:/nowhere image",
        "docker run --ulimit nothing=1 image",
        "docker run --shm-size much image",
        "docker compose -f docker/compose.yaml --profile 9x up -d",
        "HEALTHCHECK --every=60s CMD ./rig health",
        "rm -r ~/.cache",
        "systemctl --user start vllm-nothing@main",
        "scp head:.config/vllm-rig/nothing .",
        "nvidia-smi -f docs/nothing.md",
    ],
)
def test_what_is_wrong_with_a_foreign_command_is_seen(text: str) -> None:
    judged = _judged(text)
    assert judged.wrong and not judged.unknown


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (samples.wrong_paths("patches/nothing   a file\n"), "there is no"),
        (samples.wrong_python("def f(:\n"), "syntax"),
        (samples.wrong_image("[image]\nname = 1\n"), "digests"),
        (samples.wrong_image("[image\n"), "Expected"),
        (samples.wrong_skip('[skip]\n"9999" = "why"\n'), "no patch 9999"),
        (samples.wrong_skip("[skip\n"), "Expected"),
        (samples.wrong_ini("memory=1\n"), "no section"),
        (samples.wrong_log("visual: 35 units, some streamed\n"), "no such line"),
        (
            samples.wrong_log(
                "CPU offload of 'mlp': 1 parameter, 2 KiB in CPU memory; "
                "1 parameter, 2 KiB not: the moon is full\n"
            ),
            "no patch says",
        ),
        (samples.wrong_synopsis("reboot [now]\n"), "not a command of ours"),
    ],
)
def test_what_is_wrong_with_a_sample_is_seen(said: str, part: str) -> None:
    assert part in said


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("A=1 make apply >log 2>&1 && ./rig pins", ["make apply", "./rig pins"]),
        ("(cd a && b c)   # why", ["cd a", "b c"]),
        ("a | sudo tee /etc/b", ["a", "tee /etc/b"]),
        ("/path/to/python scripts/bench-towers --json a", ["scripts/bench-towers --json a"]),
        ("~/engine/bin/python -m pip freeze >a", ["python -m pip freeze"]),
        ("a > b c", ["a c"]),
    ],
)
def test_the_commands_of_a_line(line: str, commands: list[str]) -> None:
    assert [" ".join(words) for words in commands_in(line)] == commands


def test_what_a_command_reads_is_no_command() -> None:
    text = "cat >a <<END\nmake x\nEND\nmake \\\n  y\n\n# no\n"
    assert shell_lines(text) == ["cat >a <<END\nmake x\nEND", "make y"]
    assert commands_in(shell_lines(text)[0]) == [("cat",)]


@pytest.mark.parametrize("line", ["reboot", "cp a /etc/b", "sudo tee b", "cd .. && rm a", "make x"])
def test_a_block_that_is_run_runs_only_what_is_harmless(line: str) -> None:
    code = Code(f"mkdir -p ~/.config/a\n{line}\n", inline=False)
    assert row_of_run(code)
    assert lines_to_run(code) == ["mkdir -p ~/.config/a"]
    assert _judged(code.text).unknown or line == "make x"
