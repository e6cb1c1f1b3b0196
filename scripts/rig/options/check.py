"""Refuse in a blink what `vllm serve` would refuse after seconds.

The arguments go through Python's argparse, which is what vLLM uses, over a parser that is made
again from the option table: abbreviations, `--name=value`, missing values and the ends of lists
are then read as vLLM reads them. Before that vLLM rewrites some spellings; so does this.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Sequence
from typing import NoReturn

from rig.errors import RigError
from rig.options.table import Option, OptionTable

_SIZE = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]")


class UnknownOptionError(RigError):
    """vLLM has no such option, or would not take its value."""


def check_arguments(
    table: OptionTable, model: str, arguments: Sequence[str], ours: Sequence[str] = ()
) -> None:
    """Raise UnknownOptionError if vLLM would not take these arguments after the model.

    What stands in a file that `--config` names is not looked at. A misspelt option may be one of
    `ours`, which are not vLLM's: they are offered as well.
    """
    parser = _Parser(table)
    words, pieces = _as_vllm_rewrites(arguments)
    for name, value in pieces.items():
        words += [name, json.dumps(value)]
    _, left = parser.parse_known_args([model, *words])
    unknown = next((word for word in left if word.startswith("-")), left[0] if left else None)
    if unknown is not None:
        raise _unknown(table, unknown, ours)


def spell_out(table: OptionTable, arguments: Sequence[str]) -> tuple[str, ...]:
    """The same arguments, with the whole name of each option in place of a beginning or an alias.

    vLLM takes `--te 2` and `-tp 2`: whoever reads the arguments after this need not know that.
    A name that may be of several options, or of none, stays as it is.
    """
    return tuple(_spelled(table, word) for word in arguments)


def _spelled(table: OptionTable, word: str) -> str:
    head, equals, value = word.partition("=")
    name, dot, keys = head.partition(".")
    if not name.startswith("-") or _is_number(head):
        return word
    if name.startswith("--"):
        name = name.replace("_", "-")
    exact = table.option(name)
    meant = [(exact, name)] if exact is not None else []
    for option in table.options if exact is None else ():
        meant += [(option, known) for known in option.names if known.startswith(name)]
    if not meant or any(option is not meant[0][0] for option, _ in meant):
        return word
    option, known = meant[0]
    # `--x` and `--no-x` are names of one switch, and each says something else.
    if option.nargs != 0 or not known.startswith("--"):
        known = next((n for n in option.names if n.startswith("--")), known)
    return known + dot + keys + equals + value


def nearest_names(
    table: OptionTable, name: str, most: int = 3, ours: Sequence[str] = ()
) -> list[str]:
    """The options whose names are most like this one, best first; `ours` may be meant as well."""
    theirs = {n for option in table.options for n in option.names if n.startswith("--")}
    known = sorted({*theirs, *ours})
    bare = name.removeprefix("--no-").removeprefix("--")
    inside = [n for n in known if len(bare) >= 4 and bare in n and not n.startswith("--no-")]
    close = difflib.get_close_matches(name, known, n=most, cutoff=0.6)
    return list(dict.fromkeys([*close, *sorted(inside, key=len)]))[:most]


def _unknown(table: OptionTable, word: str, ours: Sequence[str]) -> UnknownOptionError:
    name = word.partition("=")[0].partition(".")[0]
    if not name.startswith("-"):
        return UnknownOptionError(
            f"{word!r} belongs to no option",
            next_step="the model comes first, once; a value follows the option that takes it",
        )
    near = nearest_names(table, name.replace("_", "-"), ours=ours)
    said = f"nearest: {', '.join(near)}; " if near else ""
    return UnknownOptionError(
        f"vLLM {table.version} has no option {name}",
        next_step=f"{said}see `vllm serve --help=all`, or --no-option-check",
    )


class _Parser(argparse.ArgumentParser):
    def __init__(self, table: OptionTable) -> None:
        super().__init__(prog="vllm serve", add_help=False)
        self._table = table
        self.add_argument("model", nargs="?")
        for number, option in enumerate(table.options):
            names = [name for name in option.names if name not in ("-h", "--help")]
            if not names:
                continue
            destination = f"option{number}"
            if option.nargs == 0:
                self.add_argument(*names, dest=destination, action="store_true")
            else:
                self.add_argument(
                    *names, dest=destination, nargs=option.nargs, type=_converter(option)
                )

    def error(self, message: str) -> NoReturn:
        """Called by argparse for a missing or bad value, or an ambiguous beginning of a name."""
        said = message.removeprefix("argument ")
        raise UnknownOptionError(
            f"vLLM {self._table.version} would refuse this: {said}",
            next_step="see `vllm serve --help=all`, or --no-option-check",
        )


def _converter(option: Option) -> _Value:
    return _Value(option)


class _Value:
    """Converts a value as argparse asks for it: raises if the option does not take it."""

    def __init__(self, option: Option) -> None:
        self._option = option

    def __call__(self, text: str) -> str:
        option = self._option
        if option.choices is not None:
            wanted = _loosely(text) if option.loose else text
            known = {_loosely(c) if option.loose else c for c in option.choices}
            if wanted not in known:
                near = difflib.get_close_matches(text, option.choices, n=1)
                hint = f"; nearest: {near[0]}" if near else ""
                raise argparse.ArgumentTypeError(
                    f"{text!r} is not one of {', '.join(option.choices)}{hint}"
                )
        elif not _looks_right(option, text):
            raise argparse.ArgumentTypeError(f"{text!r} is not {_WANTED[option.kind]}")
        return text


_WANTED = {
    "integer": "a whole number",
    "size": "a whole number (as 8192, 8k or 8K)",
    "number": "a number",
    "json": "JSON",
    "object": 'JSON in braces, like {"key": 1}',
}


def _looks_right(option: Option, text: str) -> bool:
    # vLLM's optional types take an empty word and "None" for nothing.
    if option.kind == "text" or text in ("", "None") or (option.auto and text.lower() == "auto"):
        return True
    try:
        if option.kind == "integer":
            int(text)
        elif option.kind == "size":
            if not _SIZE.fullmatch(text.strip()):
                int(text)
        elif option.kind == "number":
            float(text)
        else:
            value = json.loads(text)
            return option.kind == "json" or isinstance(value, dict)
    except ValueError:
        return False
    return True


def _loosely(text: str) -> str:
    return text.lower().replace("-", "_")


def _as_vllm_rewrites(arguments: Sequence[str]) -> tuple[list[str], dict[str, dict[str, object]]]:
    """The words with vLLM's own spellings, and apart the options that were given by pieces.

    Raises:
        UnknownOptionError: a piece (`--name.key`) is the last word and has no value.
    """
    words: list[str] = []
    pieces: dict[str, dict[str, object]] = {}
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("-O") and word != "-O":
            words += ["--optimization-level", word[2:].removeprefix("=")]
            continue
        if word == "-O" and waiting and waiting[0] in ("0", "1", "2", "3"):
            words.append("--optimization-level")
            continue
        if name.startswith("--"):
            head, dot, keys = name.partition(".")
            name = head.replace("_", "-") + dot + keys
        if name.startswith("-") and "." in name and not _is_number(name):
            if not equals:
                if not waiting:
                    raise UnknownOptionError(f"{name} needs a value", where=word)
                value = waiting.pop(0)
            head, _, keys = name.partition(".")
            pieces.setdefault(head, {})[keys] = value
        else:
            words.append(name + equals + value)
    return words, pieces


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
