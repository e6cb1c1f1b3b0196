"""Prints the option table of `vllm serve` as JSON, from vLLM's own parser.

Run as a file with the engine's Python (not the tools'): importing vLLM takes seconds, so what
this prints is kept, see `rig.options.cache`. Nothing of `rig` is imported here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

# What an option's type takes is found by trying it: the types are closures without a name.
PROBES = ("7", "1.5", "1k", "auto", "word", "none", "{}", '"word"')


def parser_of_serve() -> argparse.ArgumentParser:
    """The parser that `vllm serve` itself builds, as its command line does."""
    utilities = importlib.import_module("vllm.utils.argparse_utils")
    serve = importlib.import_module("vllm.entrypoints.cli.serve")
    top = utilities.FlexibleArgumentParser(prog="vllm")
    (command,) = serve.cmd_init()
    parser: argparse.ArgumentParser = command.subparser_init(top.add_subparsers())
    return parser


def takes(convert: Any, text: str) -> bool:
    """Whether the type of an option takes this text."""
    try:
        convert(text)
    except (Exception, SystemExit):
        return False
    return True


def describe(action: argparse.Action, names: list[str]) -> dict[str, Any]:
    """One option as data."""
    convert = action.type
    choices = None if action.choices is None else [str(choice) for choice in action.choices]
    return {
        "names": names,
        "nargs": action.nargs,
        "choices": choices,
        "accepts": [p for p in PROBES if convert is None or takes(convert, p)],
        "typed": convert not in (None, str),
        "append": isinstance(action, argparse._AppendAction),
    }


def table(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The whole table. Names that help hides are in it: they are taken all the same."""
    names: dict[int, list[str]] = {}
    actions: dict[int, argparse.Action] = {}
    for name, action in parser._option_string_actions.items():
        names.setdefault(id(action), []).append(name)
        actions[id(action)] = action
    options = [describe(action, names[key]) for key, action in actions.items()]
    return {"options": sorted(options, key=lambda option: str(option["names"]))}


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # vLLM speaks to standard output when it is imported
    os.write(answer, json.dumps(table(parser_of_serve())).encode() + b"\n")
    sys.stdout.flush()
