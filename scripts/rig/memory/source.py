"""Where a model is read from: a folder, a config file, or a hub, of which only headers are read.

Of a hub's model nothing but its configs and the heads of its weight files is read, some hundred
kilobytes. They are kept in the user's cache by the model's name, so that the next plan needs no
network. `huggingface_hub` knows the addresses, the token and the user's settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rig.errors import RigError, first_line_of_os_error
from rig.memory.headers import Tensor, read_headers
from rig.memory.model import Model, model_of

PATIENCE_S = 30.0
"""Seconds that all of the network's answers may take together."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"


def read_model(
    name_or_folder: str,
    *,
    config_file: Path | None = None,
    refresh: bool = False,
    patience_s: float = PATIENCE_S,
    cache: Path | None = None,
) -> Model:
    """Read a model's config and the headers of its weights.

    Args:
        name_or_folder: a folder with a `config.json`, or a hub's model.
        config_file: plan from this config alone; the weights' sizes are computed from it.
        refresh: ask the hub again, although the model is in the cache.
        patience_s: seconds that the hub may take.
        cache: where what was read of a hub is kept; the user's cache if absent.

    Raises:
        RigError: there is no such folder, model, config or weight; a file is cut short; the hub
            does not answer or does not let this user in.
    """
    if config_file is not None:
        path = config_file / CONFIG if config_file.is_dir() else config_file
        return model_of(read_json(path), None, source=str(config_file))
    folder = Path(name_or_folder).expanduser()
    if name_or_folder and folder.is_dir():
        return read_folder(folder)
    if folder.is_file():
        raise RigError(
            f"{name_or_folder} is a file, not a model",
            next_step="name its folder; or give a config.json to --config",
        )
    if not _HUB_NAME.fullmatch(name_or_folder):
        raise RigError(
            "there is no such folder", where=name_or_folder, next_step="look at how it is spelt"
        )
    from rig.memory.hub import read_hub

    return read_hub(name_or_folder, refresh=refresh, patience_s=patience_s, cache=cache)


def read_folder(folder: Path, *, source: str | None = None, revision: str = "") -> Model:
    """Read a model that lies in a folder; see `read_model`."""
    config_path = folder / CONFIG
    if not config_path.is_file():
        raise RigError(
            "the folder holds no config.json",
            where=folder,
            next_step="name a folder with a whole Hugging Face model",
        )
    config = read_json(config_path)
    files = weight_files(folder)
    if not files:
        raise RigError(
            "the folder holds no *.safetensors, so the sizes of its weights are not known",
            where=folder,
            next_step="download them; or compute the sizes: "
            f"./rig plan NAME --config {config_path}",
        )
    preprocessor = folder / PREPROCESSOR
    return model_of(
        config,
        read_headers(files),
        source=source or str(folder),
        revision=revision,
        preprocessor=read_json(preprocessor) if preprocessor.is_file() else None,
    )


def weight_files(folder: Path) -> list[Path]:
    """The weight files that an engine loads from a folder, in order.

    Raises:
        RigError: the index names files that are not there.
    """
    index = folder / INDEX
    if index.is_file():
        names = names_in_index(read_json(index), index)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise RigError(
                f"{len(missing)} of {len(names)} weight files are not there",
                where=folder / missing[0],
                next_step="download the rest of the model",
            )
        return [folder / name for name in names]
    found = sorted(p.name for p in folder.glob("*.safetensors"))
    return [folder / name for name in loaded_names(found)]


def loaded_names(names: list[str]) -> list[str]:
    """Of all weight files those that are loaded: Mistral's own layout only if it is alone."""
    usual = [n for n in names if not n.startswith(("consolidated", "adapter_"))]
    return usual or [n for n in names if n.startswith("consolidated")]


def names_in_index(index: Mapping[str, Any], where: object) -> list[str]:
    """The files that an index names, each once and in order."""
    table = index.get("weight_map")
    if not isinstance(table, Mapping) or not table:
        raise RigError("the index of the weights names no file", where=where)
    return sorted({str(name) for name in table.values()})


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON table."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RigError(first_line_of_os_error(error), where=path) from error
    except ValueError as error:
        raise RigError("the file holds no JSON", where=path, detail=str(error)) from error
    if not isinstance(found, dict):
        raise RigError("the file holds no table", where=path)
    return found


def as_json(model: Model) -> str:
    """What is kept of a hub's model."""
    return json.dumps(
        {
            "layout": 1,
            "name": model.source,
            "revision": model.revision,
            "config": model.config,
            "preprocessor": model.preprocessor,
            "tensors": [[t.name, t.dtype, list(t.shape)] for t in model.tensors],
        }
    )


def of_json(text: str, name: str) -> Model | None:
    """A model as it was kept; None if that is damaged or of another layout."""
    try:
        kept = json.loads(text)
        if kept["layout"] != 1 or kept["name"] != name:
            return None
        tensors = tuple(Tensor(str(n), str(d), tuple(map(int, s))) for n, d, s in kept["tensors"])
        return model_of(
            kept["config"],
            tensors,
            source=name,
            revision=str(kept["revision"]),
            preprocessor=kept["preprocessor"],
        )
    except (ValueError, KeyError, TypeError):
        return None
