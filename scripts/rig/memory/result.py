"""What a memory plan says. All sizes are bytes, per rank unless a name says otherwise."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelFacts(_Record):
    """What was read of a model: from its config and the headers of its weights.

    `towers` names the vision and audio encoders. `source` is the folder, hub id or config file.
    """

    source: str
    architecture: str
    attention_heads: int
    kv_heads: int
    layers: int
    max_model_len: int
    dtype: str
    quantization: str | None = None
    mla: bool = False
    moe_experts: int = 0
    towers: tuple[str, ...] = ()


class Layout(_Record):
    """How ranks share a model: tensor x pipeline ranks, the rest of the cards idle."""

    tensor: int
    pipeline: int = 1
    idle: int = 0


class RankPlan(_Record):
    """The parts of one card's memory. `kv_cache` is what is left for it, after `headroom`."""

    rank: int
    card: int
    free: int  # what the card has free before the start
    weights: int  # language model, embeddings, head
    tower: int  # towers resident on this rank, stem and resident blocks included
    ring: int  # buffers that a streamed tower flows through
    activations: int
    graphs: int
    context: int  # CUDA context, NCCL and other libraries
    headroom: int
    kv_cache: int


class Advice(_Record):
    """A flag that the plan implies, or something to give up; `why` is one sentence."""

    flag: str  # "--offload-towers", or "" when it is only a sentence
    value: str | None = None
    why: str = ""


class MemoryPlan(_Record):
    """A whole plan.

    `kv_bytes_per_token` counts one rank. `kv_tokens` is the smallest over ranks. `host_pinned` is
    the page-locked host memory of the whole box. `tower_streams` says whether this plan streams
    the towers; `kv_tokens_without_streaming` and `encode_ms_added` are there if it does.
    """

    model: ModelFacts
    layout: Layout
    ranks: tuple[RankPlan, ...]
    kv_bytes_per_token: float
    kv_tokens: int
    max_model_len: int  # as it will be served
    host_pinned: int
    fits: bool
    tower_streams: bool = False
    kv_tokens_without_streaming: int | None = None
    encode_ms_added: float | None = None
    flags: tuple[Advice, ...] = ()  # what `serve` adds
    advice: tuple[Advice, ...] = ()  # what a person may choose
