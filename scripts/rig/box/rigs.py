"""Rig files: find one by name or path, make one from what is seen, compare the two."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ValidationError

from rig.box.auto import rig_of_box
from rig.box.compare import disagreements
from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.errors import RigError, first_line_of_os_error

__all__ = ["AUTO", "disagreements", "find_rig", "read_rig", "rig_names", "rig_of_box"]

AUTO = "auto"


def rigs_folder() -> Path:
    """Where the rig files of this checkout lie: scripts/rigs."""
    return Path(__file__).resolve().parents[2] / "rigs"


def rig_names(folder: Path | None = None) -> tuple[str, ...]:
    """The names of the rig files, sorted."""
    return tuple(sorted(path.stem for path in (folder or rigs_folder()).glob("*.toml")))


def find_rig(name: str, *, folder: Path | None = None, box: Box | None = None) -> Rig:
    """The rig of a name ("4x3090"), of a path to a TOML file, or of the box ("auto").

    Args:
        folder: where names are looked up; scripts/rigs if None.
        box: what "auto" is made from; this machine is read if None.

    Raises:
        RigError: there is no such rig (the nearest name is offered), or its file is wrong (every
            fault is listed, with its line), or "auto" finds no cards.
    """
    if name == AUTO:
        from rig.box.read import read_box

        return rig_of_box(box if box is not None else read_box())
    if name.endswith(".toml") or "/" in name:
        return read_rig(Path(name).expanduser())
    known = rig_names(folder)
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        offer = f"did you mean {near[0]}? " if near else ""
        raise RigError(
            f"there is no rig named {name!r}",
            where=f"{AUTO}, {', '.join(known)}",
            next_step=f"{offer}`--rig {AUTO}` looks at this box; a path to a .toml file works too",
        )
    return read_rig((folder or rigs_folder()) / f"{name}.toml")


def read_rig(path: Path) -> Rig:
    """Read one rig file.

    Raises:
        RigError: it cannot be read, is no TOML, or says what a rig file does not know.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RigError(
            f"the rig file cannot be read: {first_line_of_os_error(error)}",
            where=path,
            next_step="`--rig` takes a name of scripts/rigs, a path to a .toml file, or auto",
        ) from error
    except UnicodeDecodeError as error:
        raise RigError(
            "the rig file is not UTF-8 text", where=path, next_step="save it as UTF-8"
        ) from error
    try:
        told = tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RigError(
            f"the rig file is no TOML: {error}",
            where=path,
            next_step='text needs quotes ("..."), tables look like [cards]',
        ) from error
    try:
        return Rig.model_validate({"name": path.stem, **told})
    except ValidationError as error:
        told_faults = [_fault(text, o["type"], o["loc"], o["msg"]) for o in error.errors()]
        faults = [fault for _, fault in sorted(told_faults)]
        raise RigError(
            f"the rig file has {len(faults)} fault{'s' if len(faults) > 1 else ''}",
            where=path,
            detail="\n".join(faults),
            next_step="docs/rig-files.md lists every key; copy the nearest of scripts/rigs",
        ) from error


def _fault(text: str, kind: str, loc: tuple[int | str, ...], message: str) -> tuple[int, str]:
    """One fault: its line in the file (0: unknown), and where, what, and what it should be."""
    keys = [str(part) for part in loc if isinstance(part, str)]
    key = keys[-1] if keys else ""
    table = keys[:-1]
    shown = f"[{'.'.join(table)}] {key}".strip() if table else key or "the file"
    line = _line_of(text, table, key)
    index = loc[-1] if loc and isinstance(loc[-1], int) else None
    said = _said(kind, shown, keys, index, message)
    return (line, f"line {line}: {said}") if line else (0, said)


def _said(kind: str, shown: str, keys: list[str], index: int | None, message: str) -> str:
    if kind == "extra_forbidden":
        allowed = _keys_of(keys[:-1])
        near = difflib.get_close_matches(keys[-1].lower(), allowed, n=1, cutoff=0.5)
        offer = f"did you mean {near[0]!r}? " if near else ""
        return f"{shown} is not known: {offer}known here: {', '.join(allowed)}"
    if kind == "missing" and index is not None:
        return f"{shown}: value {index + 1} is missing"
    if kind == "missing":
        return f"{shown} is missing"
    return f"{shown}: {message.removeprefix('Value error, ')}"


def _keys_of(table: list[str]) -> list[str]:
    model: type[BaseModel] = Rig
    for name in table:
        field = model.model_fields.get(name)
        if field is None or not isinstance(field.annotation, type):
            return []
        model = field.annotation
    return list(model.model_fields)


def _line_of(text: str, table: list[str], key: str) -> int | None:
    """The line of a key, or of its table; None when it is written in another way."""
    here: list[str] = []
    of_table: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if header:
            here = [part.strip().strip("\"'") for part in header[1].split(".")]
            if here == table or here == [*table, key]:
                of_table = number
        elif here == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return of_table
