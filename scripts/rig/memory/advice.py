"""What a plan says in words: the flags it implies, and what a person may choose or give up."""

from __future__ import annotations

from collections.abc import Sequence

from rig.memory.counting import Counted
from rig.memory.layouts import PUBLISHED
from rig.memory.model import Model
from rig.memory.options import UTILIZATION, PlanOptions
from rig.memory.result import Advice, Layout

MIB = 2**20
_VIDEO = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen2_5_omni", "qwen3_omni", "glm4")


def layout_name(layout: Layout) -> str:
    """A layout in few words: "TP2 x PP2", "TP2, 1 card idle"."""
    name = f"TP{layout.tensor}" if layout.tensor > 1 or layout.pipeline == 1 else ""
    if layout.pipeline > 1:
        name = f"{name} x PP{layout.pipeline}".removeprefix(" x ")
    if layout.idle:
        name += f", {layout.idle} card{'s' if layout.idle > 1 else ''} idle"
    return name


def flags_for(chosen: Counted, model: Model, options: PlanOptions) -> tuple[Advice, ...]:
    """The flags that `vllm serve` needs for this plan, without those that were asked for."""
    flags = []
    layout = chosen.layout
    if options.tensor is None:
        flags.append(_flag("tensor-parallel-size", layout.tensor, _why_layout(layout)))
    if options.pipeline is None and layout.pipeline > 1:
        flags.append(_flag("pipeline-parallel-size", layout.pipeline, _why_layout(layout)))
    if options.max_model_len is None and chosen.max_len < model.architecture.max_len:
        own = model.architecture.max_len
        flags.append(
            _flag(
                "max-model-len",
                chosen.max_len,
                f"the model's {own} tokens do not fit or are more than the rig file asks for",
            )
        )
    if options.gpu_memory_utilization is None and chosen.utilization < UTILIZATION:
        flags.append(
            _flag(
                "gpu-memory-utilization",
                f"{chosen.utilization:.2f}",
                "a card is not as free as vLLM's own 0.92 asks for at start-up",
            )
        )
    vision = model.architecture.vision
    if vision is not None and options.videos == 0 and options.images != 0 and _takes_video(model):
        flags.append(
            _flag(
                "limit-mm-per-prompt",
                '{"video": 0}',
                "one video that is profiled for can take most of the KV cache",
            )
        )
    if chosen.streams and options.offload_towers is None:
        flags.append(_flag("offload-towers", None, "without it nothing fits"))
    return tuple(flags)


def _takes_video(model: Model) -> bool:
    kinds = (model.config.get("model_type"), model.architecture.model_type)
    return any(str(kind or "").startswith(_VIDEO) for kind in kinds)


def _flag(name: str, value: object | None, why: str) -> Advice:
    return Advice(flag=f"--{name}", value=None if value is None else str(value), why=why)


def _why_layout(layout: Layout) -> str:
    if layout.pipeline == 1 and not layout.idle:
        return "each card holds a part of every layer"
    return f"{layout_name(layout)}: the model does not divide over all cards, or does not fit so"


def advice_for(
    chosen: Counted,
    others: Sequence[Counted],
    model: Model,
    options: PlanOptions,
    eighth: Counted | None,
    streamed: Counted | None,
) -> tuple[Advice, ...]:
    """What a person may choose. `eighth`, `streamed`: the same with an 8-bit cache, streaming."""
    found = [] if chosen.fits else _to_give_up(chosen, model, options)
    found += _about_layouts(chosen, others)
    if eighth is not None and eighth.kv_tokens > chosen.kv_tokens:
        found.append(
            _flag(
                "kv-cache-dtype",
                "fp8",
                f"{eighth.kv_tokens:,} tokens of KV cache instead of {chosen.kv_tokens:,}; answers "
                "change a little, and not every attention kernel of a card can read it",
            )
        )
    if streamed is not None and streamed.streams and streamed.kv_tokens > chosen.kv_tokens:
        found.append(
            _flag(
                "offload-towers",
                None,
                f"{streamed.kv_tokens:,} tokens of KV cache instead of {chosen.kv_tokens:,}, for "
                f"{streamed.host_pinned // MIB:,} MiB of page-locked host memory",
            )
        )
    if chosen.fits and options.kv_cache_memory is None:
        smallest = min(rank.kv_cache for rank in chosen.ranks)
        found.append(
            _flag(
                "kv-cache-memory-bytes",
                smallest // MIB * MIB,
                "once it has run well: a fixed size is not changed by what else is on the cards "
                "when it starts. Take the figure that vLLM prints, not this one",
            )
        )
    return tuple(found)


def _to_give_up(chosen: Counted, model: Model, options: PlanOptions) -> list[Advice]:
    short = -(-chosen.missing // MIB)
    found = [
        Advice(
            flag="",
            why=f"it does not fit: the fullest card lacks {short:,} MiB for one request of "
            f"{chosen.max_len:,} tokens. What follows may make room, the cheapest first.",
        )
    ]
    if options.max_model_len is not None and chosen.longest:
        found.append(
            _flag("max-model-len", chosen.longest, "the longest context that fits as it is")
        )
    activations = max(rank.activations for rank in chosen.ranks)
    if options.max_num_batched_tokens > 1024 or options.max_num_seqs > 16:
        found.append(
            _flag(
                "max-num-seqs",
                16,
                f"activations are modelled at {activations // MIB:,} MiB; "
                "fewer requests at a time need less",
            )
        )
    if model.architecture.vision is not None and not options.text_only:
        found.append(
            _flag(
                "limit-mm-per-prompt", '{"image": 0, "video": 0}', "text only: no tower is loaded"
            )
        )
    if not options.enforce_eager:
        graphs = chosen.ranks[0].graphs
        found.append(
            _flag(
                "enforce-eager",
                None,
                f"no CUDA graphs: about {graphs // MIB:,} MiB, at the price of slower answers",
            )
        )
    if model.quantization.method == "none":
        found.append(Advice(flag="", why="a 4-bit version of the model has a third of its weights"))
    found.append(Advice(flag="", why="more cards, or a smaller model"))
    return found


def _about_layouts(chosen: Counted, others: Sequence[Counted]) -> list[Advice]:
    layout = chosen.layout
    cards = layout.tensor * layout.pipeline + layout.idle
    found = []
    if cards == 4 and any(o.layout.tensor == 2 and o.layout.pipeline == 2 for o in others):
        found.append(
            Advice(
                flag="--pipeline-parallel-size",
                value="2",
                why=f"with --tensor-parallel-size 2, for many users at a time; {PUBLISHED}",
            )
        )
    if layout.idle or layout.pipeline > 1:
        for other in others:
            ranks = other.layout.tensor * other.layout.pipeline
            smaller = other.layout.idle > 0 and other.layout.tensor <= layout.tensor
            if not other.fits or ranks < 2 or smaller:
                continue
            found.append(
                Advice(
                    flag="",
                    why=f"{layout_name(other.layout)} holds {other.kv_tokens:,} tokens, "
                    f"{layout_name(layout)} {chosen.kv_tokens:,}. Fewer cards in tensor parallel "
                    "answer one user sooner than as many stages; stages have more room and "
                    "answer many users better",
                )
            )
    one = next((o for o in others if o.fits and o.layout.tensor * o.layout.pipeline == 1), None)
    if one is not None and cards > 1:
        found.append(
            Advice(
                flag="",
                why=f"it fits one card with {one.kv_tokens:,} tokens: {cards} servers, one for "
                "each card, need no traffic between cards and answer many users best",
            )
        )
    return found
