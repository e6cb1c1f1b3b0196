"""Readers for the blocks that are no shell: files, logs, formulas."""

from __future__ import annotations

import ast
import configparser
import re
import textwrap
import tomllib

from pydantic import ValidationError

from rig.engine_log.offload import _HOST, _SAVED, _TOTAL, _TOWER
from rig.layout import layout_of_this_checkout
from rig.pins import BaseImage

from .commands import is_ours
from .pages import ROOT
from .shell import commands_in, shell_lines

_LAYOUT = layout_of_this_checkout()
_SIZE = r"\d+(?:\.\d+)? (?:bytes|KiB|MiB|GiB)"
_SEGMENT = re.compile(
    rf"CPU offload of '\w+': \d+ parameters?, {_SIZE} in CPU memory"
    rf"(?:; \d+ parameters?, {_SIZE} not: (.+))?"
)


def wrong_paths(text: str) -> str:
    """A list of files: each is there, or is made by a command."""
    for line in (line for line in text.splitlines() if not line.startswith(" ")):
        for path in re.split(r", ", re.split(r"\s{2,}|; ", line)[0]):
            glob = re.sub(r"NNNN|<\w+>", "*", path)
            ignored = (ROOT / ".gitignore").read_text().split()
            if not list(ROOT.glob(glob)) and f"/{path}" not in ignored:
                return f"there is no {path}"
    return ""


def wrong_python(text: str) -> str:
    """Python reads it."""
    try:
        ast.parse(textwrap.dedent(text))
    except SyntaxError as error:
        return str(error)
    return ""


def wrong_toml(text: str) -> str:
    """TOML reads it."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    return ""


def wrong_image(text: str) -> str:
    """The part of a pin that names its image; only the digest is not shown."""
    whole = text.replace("sha256:...", f"sha256:{'0' * 64}")
    try:
        BaseImage.model_validate(tomllib.loads(whole)["image"])
    except (tomllib.TOMLDecodeError, KeyError, ValidationError) as error:
        return str(error)
    return ""


def wrong_skip(text: str) -> str:
    """The part of a pin that leaves patches out: patches that there are, with reasons."""
    if said := wrong_toml(text):
        return said
    skip = tomllib.loads(text)["skip"]
    series = [line[:4] for line in _LAYOUT.series.read_text().splitlines()]
    strange = [number for number in skip if number not in series]
    return f"no patch {strange[0]}" if strange else "" if all(skip.values()) else "no reason"


def wrong_ini(text: str) -> str:
    """Read as Windows reads its .wslconfig."""
    try:
        configparser.ConfigParser().read_string(text)
    except configparser.Error as error:
        return str(error)
    return ""


def wrong_log(text: str) -> str:
    """Lines of the engine: our reader of logs knows them, and the series has their reasons."""
    series = "".join(path.read_text() for path in _LAYOUT.patches.glob("*.patch"))
    for line in text.splitlines():
        segment = _SEGMENT.fullmatch(line)
        if segment and (segment[1] or "") not in series:
            return f"no patch says: {segment[1]}"
        if not segment and not any(p.match(line) for p in (_HOST, _SAVED, _TOTAL, _TOWER)):
            return f"the engine says no such line: {line}"
    return ""


def wrong_synopsis(text: str) -> str:
    """No shell reads its brackets; its commands are held against the real parsers all the same."""
    lines = shell_lines(text)
    strange = [line for line in lines if not all(is_ours(w) for w in commands_in(line))]
    return f"not a command of ours: {strange[0]}" if strange or not lines else ""
