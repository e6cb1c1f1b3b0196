"""Reading a model of a hub: its configs and the heads of its weights, within a bounded time."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rig.errors import RigError, first_line_of_os_error
from rig.layout import user_cache
from rig.memory.headers import Tensor, tensors_of_table
from rig.memory.model import Model, model_of
from rig.memory.source import (
    CONFIG,
    INDEX,
    PREPROCESSOR,
    as_json,
    loaded_names,
    names_in_index,
    of_json,
    read_folder,
    read_json,
)

_AT_ONCE = 8
_EACH_S = 10.0


def read_hub(
    name: str, *, refresh: bool = False, patience_s: float, cache: Path | None = None
) -> Model:
    """Read a model by its name; see `rig.memory.source.read_model`.

    What this user has downloaded whole comes first, then what was kept of an earlier plan, then
    the network.
    """
    kept = _kept_in(cache or user_cache() / "models", name)
    if not refresh:
        if (model := _downloaded(name)) is not None:
            return model
        try:
            text = kept.read_text("utf-8")
        except (OSError, ValueError):
            text = ""
        if text and (model := of_json(text, name)) is not None:
            return model
    model = _within(lambda: _fetch(name), patience_s, name)
    _keep(kept, as_json(model))
    return model


def _kept_in(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '--')}.json"


def _keep(path: Path, text: str) -> None:
    """Write it whole or not at all: what stops half-way is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".", encoding="utf-8", delete=False
        ) as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        raise RigError(
            f"what was read of the model cannot be kept: {first_line_of_os_error(error)}",
            where=path.parent,
            next_step="make room, or name another folder with VLLM_RIG_CACHE",
        ) from error


def _downloaded(name: str) -> Model | None:
    """The model as the user's hub cache holds it, if it is there whole."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, CONFIG)
    except ValueError:  # no name that a hub could have
        return None
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    try:
        return read_folder(folder, source=name, revision=folder.name)
    except RigError:  # a part of it: the network knows the rest
        return None


def _within(read: Callable[[], Model], patience_s: float, name: str) -> Model:
    """Run a read that waits for the network, in a thread that may be left behind."""
    done: list[Model] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(read())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    if done:
        return done[0]
    if failed:
        raise _explained(failed[0], name)
    raise RigError(
        f"the hub did not answer within {patience_s:.0f} s",
        where=name,
        next_step="look at the network; a folder, or --config, needs none",
    )


def _fetch(name: str) -> Model:
    from huggingface_hub import HfApi, constants, hf_hub_download
    from huggingface_hub.errors import OfflineModeIsEnabled

    if constants.is_offline_mode():
        raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
    info = HfApi().model_info(name, timeout=_EACH_S)
    revision = str(info.sha)
    names = {file.rfilename for file in info.siblings or ()}

    def download(file: str) -> dict[str, Any]:
        where = hf_hub_download(name, file, revision=revision, etag_timeout=_EACH_S)
        return read_json(Path(where))

    if CONFIG not in names:
        raise RigError("the model has no config.json", where=name)
    config = download(CONFIG)
    if INDEX in names:
        files = names_in_index(download(INDEX), f"{name}, {INDEX}")
    else:
        files = loaded_names(
            sorted(n for n in names if n.endswith(".safetensors") and "/" not in n)
        )
    if not files:
        raise RigError(
            "the model has no *.safetensors, so the sizes of its weights are not known",
            where=name,
            next_step="save its config.json and compute the sizes: ./rig plan NAME --config FILE",
        )
    return model_of(
        config,
        tuple(_heads(name, revision, files)),
        source=name,
        revision=revision,
        preprocessor=download(PREPROCESSOR) if PREPROCESSOR in names else None,
    )


def _heads(name: str, revision: str, files: Sequence[str]) -> list[Tensor]:
    """The tensors of all files, several files at once, in the order of the files."""
    from huggingface_hub import parse_safetensors_file_metadata

    found: dict[str, list[Tensor]] = {}
    failed: list[BaseException] = []
    left = list(files)
    lock = threading.Lock()

    def work() -> None:
        while not failed:
            with lock:
                if not left:
                    return
                file = left.pop()
            try:
                head = parse_safetensors_file_metadata(
                    name, file, revision=revision, timeout=_EACH_S
                )
                table = {
                    key: {
                        "dtype": tensor.dtype,
                        "shape": tensor.shape,
                        "data_offsets": tensor.data_offsets,
                    }
                    for key, tensor in head.tensors.items()
                }
                found[file] = tensors_of_table(table)
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in files[:_AT_ONCE]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [tensor for file in files for tensor in found[file]]


def _explained(error: BaseException, name: str) -> BaseException:
    """What a person can do about what the hub's library raised."""
    from huggingface_hub import errors

    if isinstance(error, RigError) or not isinstance(error, Exception):
        return error
    if isinstance(error, errors.GatedRepoError):
        return RigError(
            "the model is gated: its owner wants to be asked first",
            where=name,
            next_step="accept its terms on its page, then log in: hf auth login",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return RigError(
            "the hub has no such model, or you may not see it",
            where=name,
            next_step="look at how it is spelt; for a private one log in: hf auth login",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return RigError(
            "HF_HUB_OFFLINE is set and nothing is known of the model",
            where=name,
            next_step="plan it once with the network, or name a folder, or use --config",
        )
    if isinstance(error, errors.SafetensorsParsingError):
        return RigError("a weight file of the model makes no sense", where=name, detail=str(error))
    first = next(iter(str(error).strip().splitlines()), "")
    return RigError(
        "the hub cannot be reached, and nothing is known of the model",
        where=name,
        next_step="look at the network; a folder, or --config, needs none",
        detail=f"{type(error).__name__}: {first}",
    )
