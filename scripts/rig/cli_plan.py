"""The command that says what of a model lies on each card, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rig.cli import app
from rig.console import out
from rig.errors import RigError

if TYPE_CHECKING:
    from rig.box.facts import Box
    from rig.box.rig_file import Rig


@app.command("plan")
def plan_command(
    model: Annotated[str, typer.Argument(help="A hub's model, or a folder.")] = "",
    rig: Annotated[str, typer.Option(help="A rig file's name or path, or auto.")] = "auto",
    config: Annotated[
        Path | None, typer.Option(help="A config.json; weights' sizes are computed from it.")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor parallel ranks.")] = None,
    pp: Annotated[int | None, typer.Option("--pp", help="Pipeline stages.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of context.")] = None,
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, fp8, ...")] = "auto",
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="The share of a card that vLLM may use.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Requests at a time.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Tokens in a step.")] = None,
    offload_towers: Annotated[
        bool | None,
        typer.Option(
            "--offload-towers/--no-offload-towers",
            help="Stream the towers; if absent, only where nothing fits otherwise.",
        ),
    ] = None,
    mm_encoder_data: Annotated[
        bool, typer.Option("--mm-encoder-data", help="Each card holds the whole tower.")
    ] = False,
    max_pixels: Annotated[int | None, typer.Option(help="Of one picture.")] = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager")] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask the hub again.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what fits: weights, tower, KV cache and the rest of each card; and what to give up.

    Nothing is downloaded but a model's config and the heads of its weight files, and nothing is
    started. Ends with 0 if the model fits, 1 if it does not.
    """
    from rig.memory.activations import BATCHED_TOKENS, SEQUENCES
    from rig.memory.options import PlanOptions
    from rig.memory.plan import plan_memory
    from rig.memory.source import read_model

    if not model and config is None:
        raise RigError(
            "no model is named", next_step="./rig plan MODEL, or ./rig plan --config FILE"
        )
    found = read_model(model, config_file=config, refresh=refresh)
    box, which = _rig_and_box(rig)
    options = PlanOptions(
        tensor=tp,
        pipeline=pp,
        max_model_len=max_model_len,
        kv_cache_dtype=kv_cache_dtype,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_seqs=max_num_seqs or SEQUENCES,
        max_num_batched_tokens=max_num_batched_tokens or BATCHED_TOKENS,
        offload_towers=offload_towers,
        encoder_data=mm_encoder_data,
        max_pixels=max_pixels,
        enforce_eager=enforce_eager,
    )
    plan = plan_memory(found, which, box, options)
    if json:
        out.print(plan.model_dump_json(indent=2), soft_wrap=True)
    else:
        from rig.memory.table import print_plan

        print_plan(plan, found, out)
    raise typer.Exit(0 if plan.fits else 1)


def _rig_and_box(name: str) -> tuple[Box | None, Rig]:
    """The rig to plan for, and this box if it is such a rig: else the rig file alone counts."""
    from rig.box.read import read_box
    from rig.box.rigs import AUTO, find_rig

    if name == AUTO:
        box = read_box()
        return box, find_rig(AUTO, box=box)
    rig = find_rig(name)
    box = read_box()
    sizes = [card.memory_bytes for card in box.cards or () if card.memory_bytes]
    vram = rig.cards.vram_gib * 2**30
    alike = len(sizes) >= rig.cards.count and all(abs(s / vram - 1) < 0.1 for s in sizes)
    return (box if alike else None), rig
