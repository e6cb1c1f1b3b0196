"""Shell text of the pages as commands: enough of the grammar for what the pages show."""

from __future__ import annotations

import re
import shlex

_JOINTS = ("&&", "||", "|", ";", "then", "CMD", "sudo")
_INPUT = re.compile(r"(?ms)^[^\n]*<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\s*\2$")
_REDIRECTION = re.compile(r"\d?(>>?|<<?-?)(&?\S*)")


def shell_lines(text: str) -> list[str]:
    """Logical lines: a line that goes on (backslash, pipe, or options alone) is joined.

    Empty lines and comments are left out. What a command is given as its input (`<<END`) stays
    with its line.
    """
    text = _INPUT.sub(lambda match: match[0].replace("\n", "\0"), text)
    text = re.sub(r"[ \t]*\\\n\s*|(?<=\|)\n\s*", " ", text)
    text = re.sub(r"\n\s+(?=\[)", " ", text)
    lines = [line for line in text.splitlines() if line.strip()]
    return [line.replace("\0", "\n") for line in lines if not line.lstrip().startswith("#")]


def commands_in(line: str) -> list[tuple[str, ...]]:
    """The commands of a logical line, without redirections and without variables before them.

    Of the input that is given with it, nothing is a command. A Python of the reader's own is
    shown as `python`, and a script that it runs as the script.
    """
    line = line.partition("\n")[0]
    found: list[list[str]] = []
    current: list[str] | None = None  # None: at the start of a command
    words = iter(_split(re.sub(r"^\((.+)\)(\s|$)", r"\1\2", line.removeprefix("$ "))))
    for word in words:
        if redirection := _REDIRECTION.fullmatch(word):
            if not redirection[2]:
                next(words, None)  # the file stands apart
        elif word in _JOINTS:
            current = None
        elif current is not None:
            current.append(word)
        elif not re.fullmatch(r"[A-Z][A-Z0-9_]*=\S*", word):
            current = [word]
            found.append(current)
    return [_plain(command) for command in found]


def _plain(words: list[str]) -> tuple[str, ...]:
    program = words[0].rpartition("/")[2]
    if words[0].startswith(("~/", "/")) and program in ("python", "python3", "vllm"):
        words = [program, *words[1:]]
    if words[0] in ("python", "python3") and words[1:] and words[1].startswith("scripts/"):
        words = words[1:]
    return tuple(words)


def _split(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an apostrophe in a synopsis
        words = line.split(" #")[0].split()
    split: list[str] = []
    for word in words:
        split += [word[:-1], ";"] if word.endswith(";") else [word]
    kept: list[str] = []
    for word in (part.strip("[]") for part in split):
        after_option = bool(kept) and kept[-1].startswith("--")  # `--why '...'`: a value
        if word and (word != "..." or after_option):
            kept.append(word)
    return kept
