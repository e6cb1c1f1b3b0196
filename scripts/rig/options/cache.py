"""The option table of an installed engine, asked once of each build and then kept."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from rig.errors import RigError, first_line_of_os_error
from rig.layout import user_cache
from rig.options.table import SCHEMA, OptionTable, table_from_engine
from rig.wheel.provenance import Provenance

_TIMEOUT_S = 300.0  # importing vLLM from a cold disk takes minutes on some boxes
_IN_ENGINE = Path(__file__).with_name("in_engine.py")


def key_of(provenance: Provenance) -> str:
    """What a table depends on: the build, with each patched file, and this reader of it."""
    parts = {
        "schema": SCHEMA,
        "version": provenance.version,
        "flavour": str(provenance.flavour),
        "tree": provenance.tree,
        "files": dict(provenance.files),
    }
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode() + _IN_ENGINE.read_bytes()).hexdigest()


def cached_table(provenance: Provenance, cache: Path | None = None) -> OptionTable | None:
    """The table, if it was asked for before; a damaged one counts as none."""
    try:
        text = _place(provenance, cache).read_text("utf-8")
        return OptionTable.model_validate_json(text)
    except (OSError, ValidationError):
        return None


def table_of(
    python: Path,
    provenance: Provenance,
    cache: Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> OptionTable:
    """The options that this installed vLLM takes.

    The first time it is asked of the engine itself, which takes about as long as
    `vllm serve --help` (9 to 12 s on two cores); afterwards milliseconds.

    Args:
        python: the engine's interpreter.
        provenance: what that interpreter's vLLM is.
        cache: the user's cache folder, if not the usual one.
        tell: told a line when the slow way is taken.

    Raises:
        RigError: the engine cannot be imported: names the cause that it gave.
    """
    found = cached_table(provenance, cache)
    if found is not None:
        return found
    if tell is not None:
        tell(f"asking vLLM {provenance.version} once which options it takes")
    table = ask_engine(python, provenance.version)
    _keep(table, _place(provenance, cache))
    return table


def ask_engine(python: Path, version: str) -> OptionTable:
    """Ask the engine for its table.

    Raises:
        RigError: it cannot be started or imported.
    """
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RAY_"))}
    command = [str(python), "-I", str(_IN_ENGINE)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=keep | {"HF_HUB_OFFLINE": "1"},
            check=False,
        )
        said = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])
        return table_from_engine(version, said["options"])
    except OSError as error:
        raise RigError(
            f"the engine's Python cannot be run: {first_line_of_os_error(error)}", where=python
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RigError(
            f"vLLM did not say its options within {_TIMEOUT_S:.0f} s",
            where=python,
            next_step="leave this check out: --no-option-check",
        ) from error
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        last = done.stderr.strip().splitlines()[-1:] or ["it gives no reason"]
        raise RigError(
            f"vLLM does not say its options (status {done.returncode}): {last[0]}",
            where=python,
            detail="\n".join(done.stderr.splitlines()[-15:]),
            next_step="what stops it here would stop it when it serves; or --no-option-check",
        ) from error


def _place(provenance: Provenance, cache: Path | None) -> Path:
    return (cache or user_cache()) / "options" / f"{key_of(provenance)}.json"


def _keep(table: OptionTable, place: Path) -> None:
    """Write it whole or not at all; a cache that cannot be written only costs time."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=place.parent, suffix=".new", delete=False
        ) as file:
            file.write(table.model_dump_json(exclude_defaults=True))
        Path(file.name).replace(place)
