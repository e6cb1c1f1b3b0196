"""The memory plan and the P2P verdict as `serve` uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.engine_log.rows import gib
from rig.errors import RigError
from rig.launch.arguments import has_option, pieces_of, switch_of, value_of, whole_number_of
from rig.launch.plan import ServeOptions
from rig.memory.architecture import DTYPES
from rig.memory.model import Model
from rig.memory.options import PlanOptions
from rig.memory.result import MemoryPlan

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class NoPlanError(RigError):
    """The model cannot be planned, and vLLM may load it all the same."""


def read(options: ServeOptions, *, offline: bool, only_say: bool = False) -> Model:
    """What is to be served, without its weights' bytes.

    Args:
        offline: only a folder, or what is known of a hub's model already.
        only_say: nothing will be started, so the model need not be there.

    Raises:
        NoPlanError: it is of a form that is not read here, or nothing is known of it offline.
        RigError: it is not there, or not whole: vLLM would say so minutes later.
    """
    from rig.memory.source import read_model

    try:
        with _no_network() if offline else nullcontext():
            return read_model(options.model)
    except RigError as error:
        unknown = offline and not Path(options.model).is_dir()
        what = error.what
        if unknown:
            what = f"nothing is kept of {options.model} on this machine, and no network is asked"
            if options.rehearse and not only_say:
                raise RigError(
                    f"{what}: a rehearsal downloads nothing",
                    next_step="download the model first, or name a folder that holds one; "
                    "--no-plan does not look",
                ) from error
        if only_say or unknown or _may_load_all_the_same(options):
            raise NoPlanError(what, where=error.where) from error
        raise


@contextmanager
def _no_network() -> Iterator[None]:
    """Let the hub's library look at its cache only, as HF_HUB_OFFLINE=1 does from the start."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _may_load_all_the_same(options: ServeOptions) -> bool:
    """Whether vLLM reads weights there that a plan does not: of another form, or none at all."""
    if value_of(options.extra_arguments, "--load-format") not in (None, "auto", "safetensors"):
        return True
    folder = Path(options.model)
    if folder.is_file():
        return folder.suffix == ".gguf"
    others = ("*.bin", "*.pt", "*.pth", "*.gguf", "params.json")
    return folder.is_dir() and any(any(folder.glob(pattern)) for pattern in others)


def only(box: Box | None, cards: tuple[int, ...] | None) -> Box | None:
    """The box as if it had these cards alone; the whole box if they are not known."""
    if box is None or cards is None:
        return box
    return box.model_copy(
        update={"cards": tuple(card for card in box.cards or () if card.index in cards)}
    )


def plan_of_memory(model: Model, rig: Rig, box: Box | None, options: ServeOptions) -> MemoryPlan:
    """Plan the memory of what is to be served.

    Args:
        box: the cards as they are; None plans for those of the rig file.

    Raises:
        RigError: sizes were asked for that the model or the box cannot have.
    """
    from rig.memory.plan import plan_memory

    arguments = (*rig.defaults.arguments, *options.extra_arguments)
    return plan_memory(model, rig, box, plan_options(arguments, rig))


def plan_options(arguments: Sequence[str], rig: Rig | None = None) -> PlanOptions:
    """What a plan must know of vLLM's arguments; a value that is no number is left to vLLM."""
    limits = pieces_of(arguments, "--limit-mm-per-prompt")
    processor = pieces_of(arguments, "--mm-processor-kwargs")
    default = PlanOptions()
    length = size_of(value_of(arguments, "--max-model-len"))
    if rig is not None and not has_option(arguments, "--max-model-len"):
        length = rig.defaults.max_model_len
    towers = switch_of(arguments, "--offload-towers")
    return PlanOptions(
        tensor=whole_number_of(arguments, "--tensor-parallel-size", "-tp"),
        pipeline=whole_number_of(arguments, "--pipeline-parallel-size", "-pp"),
        max_model_len=length,
        dtype=DTYPES.get(value_of(arguments, "--dtype") or "auto"),
        kv_cache_dtype=value_of(arguments, "--kv-cache-dtype") or default.kv_cache_dtype,
        gpu_memory_utilization=_share(value_of(arguments, "--gpu-memory-utilization")),
        kv_cache_memory=size_of(value_of(arguments, "--kv-cache-memory-bytes")),
        max_num_batched_tokens=size_of(value_of(arguments, "--max-num-batched-tokens"))
        or default.max_num_batched_tokens,
        max_num_seqs=size_of(value_of(arguments, "--max-num-seqs")) or default.max_num_seqs,
        block_size=size_of(value_of(arguments, "--block-size")) or default.block_size,
        enforce_eager=switch_of(arguments, "--enforce-eager") is True,
        prefix_caching=switch_of(arguments, "--enable-prefix-caching") is not False,
        expert_parallel=switch_of(arguments, "--enable-expert-parallel") is True,
        encoder_data=value_of(arguments, "--mm-encoder-tp-mode") == "data",
        offload_towers=towers,
        images=_count(limits.get("image")),
        videos=_count(limits.get("video")) or 0,
        max_pixels=_count(processor.get("max_pixels")),
    )


def size_of(text: str | None) -> int | None:
    """A whole number as vLLM reads one (8192, 8k, 8K); None for anything else, as "auto"."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", text.strip())
    if match is None:
        return None
    scale = {**_DECIMAL, **_BINARY, "": 1}[match[2]]
    number = int(float(match[1]) * scale)
    return number if number > 0 else None


def _share(text: str | None) -> float | None:
    try:
        share = float(text) if text is not None else None
    except ValueError:
        return None
    return share if share is not None and 0 < share <= 1 else None


def _count(value: object) -> int | None:
    if isinstance(value, dict):  # {"count": 2, "width": ...}
        value = value.get("count")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def summary(memory: MemoryPlan, *, rehearse: bool = False) -> list[str]:
    """The plan in a line or two, as progress; `./rig plan` shows all of it."""
    layout = memory.layout
    first = memory.ranks[0] if memory.ranks else None
    said = "plan of the rig's cards" if rehearse else "plan"
    said += f": {layout.tensor} x {layout.pipeline} ranks"
    if layout.idle:
        said += f", {layout.idle} cards idle"
    if first is not None:
        said += f", {gib(first.weights)} of weights on the first"
        if first.tower:
            said += f", {gib(first.tower)} of towers"
    kept = f"{memory.kv_tokens:,} tokens of KV cache, up to {memory.max_model_len:,} in one request"
    lines = [f"{said}, {kept}"]
    if memory.tower_streams:
        won = memory.kv_tokens - (memory.kv_tokens_without_streaming or memory.kv_tokens)
        cost = memory.encode_ms_added
        slower = f", {cost:.1f} ms more for each encode (modelled)" if cost is not None else ""
        lines.append(f"plan: the towers stream: {won:,} tokens more of KV cache{slower}")
    if rehearse:
        lines.append("note: a rehearsal keeps weights and KV cache in host memory instead")
    return lines


def why_not(memory: MemoryPlan) -> RigError:
    """The error of a model that does not fit, with what could be given up."""
    advice = [f"- {' '.join(filter(None, (a.flag, a.value)))}: {a.why}" for a in memory.advice]
    return RigError(
        f"{memory.model.source} does not fit on these cards",
        detail="\n".join(advice) or None,
        next_step="`./rig plan` shows where the memory goes; --no-plan starts it all the same",
    )
