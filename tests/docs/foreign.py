"""What can be said of a command of another program without running it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version
from pip._internal.commands import create_command

from rig.launch.engine_environment import PYTHON_VARIABLE, RAY_VERSION
from rig.layout import layout_of_this_checkout
from rig.pins import Flavour, read_pins
from rig.revision import read_revision

from .commands import Command, what_is_wrong
from .pages import ROOT

_LAYOUT = layout_of_this_checkout()
_FOLDERS = ("docker/", "docs/", "patches/", "requirements/", "scripts/", "tests/")
# Options of `docker run` in the pages, each as its reference has it: with a value, or without.
_RUN_ALONE = ("--rm", "--init")
_RUN_VALUE = ("--gpus", "--shm-size", "--ulimit", "-e", "-p", "-v")


@cache
def releases() -> dict[str, str]:
    """Pinned release -> our version of it."""
    revision = read_revision(_LAYOUT)
    return {pin.version: f"{pin.version}+rig.{revision}" for pin in read_pins(_LAYOUT)}


def wrong_paths(words: tuple[str, ...]) -> str:
    """A path of the checkout that is not there."""
    gone = [w for w in words if w.startswith(_FOLDERS) and not (ROOT / w).exists()]
    return f"there is no {gone[0]}" if gone and not gone[0].endswith("/.env") else ""


def wrong_pip(words: tuple[str, ...]) -> str:
    """By pip's own parser, and by the versions that are pinned."""
    name, *rest = words[3:]
    try:
        options, given = create_command(name).parse_args(rest)
    except SystemExit:
        return "pip does not take these options"
    missing = [c for c in getattr(options, "constraints", None) or [] if not (ROOT / c).is_file()]
    if missing:
        return f"there is no {missing[0]}"
    return next((said for what in given if (said := _wrong_requirement(what))), "")


def _wrong_requirement(what: str) -> str:
    if what.endswith(".whl"):
        # `-*.whl` would name two wheels where those of two processors lie in dist/.
        fits = [
            f"dist/vllm-{ours}{cpu}-*x86_64.whl"
            for ours in releases().values()
            for cpu in ("", ".cpu")
        ]
        return "" if what in fits else f"no build makes {what}"
    wanted = Requirement(what)
    pinned = {"ray": [RAY_VERSION], "vllm": list(releases())}.get(wanted.name)
    if pinned and not any(str(wanted.specifier) == f"=={version}" for version in pinned):
        return f"{what} is not what is pinned"
    return ""


def wrong_export(words: tuple[str, ...]) -> str:
    """The variable is the one that names the engine."""
    names = [word.partition("=")[0] for word in words[1:]]
    return "" if names == [PYTHON_VARIABLE] else f"nothing here reads {names}"


def wrong_venv(words: tuple[str, ...]) -> str:
    """A module of Python's own, and one folder."""
    found = importlib.util.find_spec(words[2]) and len(words) == 4
    return "" if found else "python has no such module, or it takes one folder"


def wrong_git(words: tuple[str, ...]) -> str:
    """By what git says of its own options, and the tag that a release has."""
    asked = subprocess.run(["git", words[1], "-h"], capture_output=True, text=True, timeout=20)
    known = asked.stdout + asked.stderr
    for option in (word for word in words[2:] if word.startswith("-")):
        spelling = option.replace("--", r"--(\[no-\])?", 1)
        if not re.search(rf"{spelling}\b", known):
            return f"git {words[1]} has no {option}"
    strange = [w for w in words if re.match(r"v\d", w) and w[1:] not in releases().values()]
    return f"no release is called {strange[0]}" if strange else ""


def wrong_tree(words: tuple[str, ...]) -> str:
    """The folder is that of a pin, or of a release to come that a page takes as its example."""
    version = words[1].rpartition("vllm-")[2]
    tree = str(_LAYOUT.tree(version).relative_to(_LAYOUT.root))
    known = version in releases() or Version(version) > max(map(Version, releases()))
    return "" if tree == words[1] and known else f"{words[1]} is the tree of no pin"


def wrong_image(words: tuple[str, ...]) -> str:
    """One of the words is an image that `make image` makes."""
    tags = {f"vllm-rig:{v.replace('+', '-')}-{f}" for v in releases().values() for f in Flavour}
    return "" if {"IMAGE", *tags} & set(words) else "it names no image that `make image` makes"


def wrong_docker_run(words: tuple[str, ...]) -> str:
    """Options, names of variables, ports, the volume's place, and the server's own line."""
    rest = list(words[2:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in _RUN_ALONE:
            continue
        if option not in _RUN_VALUE or not rest:
            return f"{option}: look it up in docker's reference, then add it here"
        value = rest.pop(0)
        if said := _wrong_value(option, value):
            return said
    if said := wrong_image(tuple(rest[:1])):
        return said
    return what_is_wrong(Command("", ("scripts/serve.sh", *rest[1:]), inline=False))[0]


def _wrong_value(option: str, value: str) -> str:
    inside = "".join((ROOT / "docker" / n).read_text() for n in ("entrypoint.sh", "Dockerfile"))
    if option == "-e" and value.partition("=")[0] not in inside:
        return f"the image knows no {value}"
    if option == "-p" and not re.fullmatch(r"127\.0\.0\.1:\d+:8000", value):
        return f"{value}: not this box only, or not the port that is served"
    if option == "-v" and f"{value.partition(':')[2]}" not in inside.split():
        return f"the image has no place {value}"
    if option == "--ulimit" and not re.fullmatch(r"(memlock|stack|nofile)=-?\d+", value):
        return f"no limit is {value}"
    return (
        "" if option != "--shm-size" or re.fullmatch(r"\d+[kmg]", value) else f"no size is {value}"
    )


def wrong_compose(words: tuple[str, ...]) -> str:
    """The profile is one of the file's."""
    text = (ROOT / words[words.index("-f") + 1]).read_text()
    profile = words[words.index("--profile") + 1]
    return "" if f"profiles: [{profile}]" in text else f"no profile {profile}"


def wrong_healthcheck(words: tuple[str, ...]) -> str:
    """Options of the instruction."""
    known = re.compile(r"--(interval|timeout|start-period|start-interval)=\d+(s|m)|--retries=\d+")
    strange = [word for word in words[1:] if not known.fullmatch(word)]
    return f"HEALTHCHECK has no {strange[0]}" if strange else ""


def wrong_rm(words: tuple[str, ...]) -> str:
    """Nothing is removed but our own folders in a home."""
    known = {f"~/{place}/vllm-rig" for place in (".cache", ".local/state", ".config")}
    strange = [word for word in words[2:] if word not in known]
    return f"{strange[0]} is not ours" if strange else ""


def wrong_unit(words: tuple[str, ...]) -> str:
    """A unit that is named has its template."""
    folder = ROOT / "scripts" / "systemd"
    units = [word.partition("@")[0] for word in words if "@" in word]
    gone = [unit for unit in units if not (folder / f"{unit}@.service").is_file()]
    return f"no unit is called {gone[0]}" if gone else ""


def wrong_scp(words: tuple[str, ...]) -> str:
    """The file is one that our source writes."""
    name = Path(next(w for w in words if ":" in w).partition(":")[2]).name
    sources = (ROOT / "scripts" / "rig" / "launch").glob("*.py")
    return "" if any(f'"{name}"' in p.read_text() for p in sources) else f"nothing writes {name}"


def wrong_curl(words: tuple[str, ...]) -> str:
    """Only a server of this box is asked, and for what our own source asks it for."""
    asked = [w for w in words[1:] if not w.startswith("-")]
    match = re.fullmatch(r"(?:http://)?(?:localhost|127\.0\.0\.1):8000(/\S*)", asked[0])
    source = "".join(path.read_text() for path in (ROOT / "scripts" / "rig").rglob("*.py"))
    return "" if match and f'"{match[1]}"' in source else f"no server of ours answers {asked[0]}"
