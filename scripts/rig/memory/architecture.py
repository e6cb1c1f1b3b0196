"""What a model is, from its config: layers, heads, experts, states, towers. No weights needed.

The keys are those of Hugging Face configs, with their older names. What a layer keeps of a
request follows vLLM 0.33.0 (`v1/kv_cache_interface.py`, `model_executor/layers/mamba`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rig.errors import RigError
from rig.memory.config_keys import DEFAULTS, Config, Lacks, first, need, with_defaults
from rig.memory.layers import Attention, State, read_layers


@dataclass(frozen=True)
class Experts:
    """A mixture: `count` experts of `intermediate`, shared ones of `shared` values together."""

    count: int
    per_token: int
    intermediate: int
    shared: int = 0


@dataclass(frozen=True)
class Architecture:
    """A model's structure. `layers` has one entry per decoder layer, None where nothing is kept.

    `text` and `vision` are the parts of the config that the language model and the vision tower
    are built from; `moe_layers` are the numbers of the layers with experts.
    """

    name: str
    model_type: str
    text: Config
    vision: Config | None
    audio: Config | None
    hidden: int
    intermediate: int
    vocabulary: int
    tied: bool
    dtype: str
    max_len: int
    heads: int
    kv_heads: int
    head_size: int
    layers: tuple[Attention | State | None, ...]
    experts: Experts | None
    moe_layers: frozenset[int]

    @property
    def mla(self) -> bool:
        return any(isinstance(a, Attention) and a.kind == "mla" for a in self.layers)

    @property
    def hybrid(self) -> bool:
        return any(isinstance(a, State) for a in self.layers)


_TEXT_KEYS = ("text_config", "language_config", "llm_config", "decoder", "text_model_config")
_VISION_KEYS = ("vision_config", "vit_config", "visual", "vision_encoder_config")
_AUDIO_KEYS = ("audio_config", "audio_encoder", "sound_config", "speech_config")
DTYPES = {"float32": "F32", "float": "F32", "float16": "F16", "half": "F16", "bfloat16": "BF16"}
"""What configs and vLLM's `--dtype` call a type, as safetensors names it."""


def read_architecture(config: Config, source: str = "config.json") -> Architecture:
    """Read the structure of a model from its config.

    Raises:
        RigError: it is no config of a model that generates text, or lacks a key.
    """
    try:
        return _read(config, text_config(config))
    except Lacks as lack:
        raise RigError(
            f"the config does not say {lack.what}",
            where=source,
            next_step="name the config.json of a model that generates text",
        ) from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise RigError(
            "the config holds a value that makes no sense", where=source, detail=str(error)
        ) from error


def text_config(config: Config) -> Config:
    """The part of a config that describes the language model."""
    inner = config.get("thinker_config", config)
    for key in _TEXT_KEYS:
        part = inner.get(key)
        if isinstance(part, Mapping) and (
            first(part, *_LAYERS) is not None or part.get("model_type") in DEFAULTS
        ):
            return part
    return inner if isinstance(inner, Mapping) else config


_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def _part(config: Config, keys: tuple[str, ...]) -> Config | None:
    inner = config.get("thinker_config", config)
    return next((inner[k] for k in keys if isinstance(inner.get(k), Mapping)), None)


def _read(config: Config, text: Config) -> Architecture:
    model_type = str(text.get("model_type") or config.get("model_type") or "")
    text = with_defaults(text, model_type)
    names = config.get("architectures") or text.get("architectures") or [model_type or "unknown"]
    hidden = need(text, "how wide it is", "hidden_size", "n_embd", "d_model")
    heads = need(
        text, "how many attention heads it has", "num_attention_heads", "n_head", "num_heads"
    )
    kv_heads = _kv_heads(text, heads)
    head_size = int(first(text, "head_dim", "attention_head_dim") or hidden // heads)
    count = need(text, "how many layers it has", *_LAYERS)
    experts = _experts(text)
    dtype = first(text, "dtype", "torch_dtype") or first(config, "dtype", "torch_dtype")
    return Architecture(
        name=str(names[0]),
        model_type=model_type,
        text=text,
        vision=_part(config, _VISION_KEYS),
        audio=_part(config, _AUDIO_KEYS),
        hidden=hidden,
        intermediate=_intermediate(text, hidden),
        vocabulary=need(text, "how many tokens it knows", "vocab_size"),
        tied=_tied(config, text, model_type),
        dtype=DTYPES.get(str(dtype).removeprefix("torch."), "BF16"),
        max_len=need(
            {"max_position_embeddings": 2048, **text},
            "its context length",
            *("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
        ),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        layers=tuple(read_layers(text, model_type, count, heads, kv_heads, head_size)),
        experts=experts,
        moe_layers=_moe_layers(text, model_type, count) if experts else frozenset(),
    )


def _tied(config: Config, text: Config, model_type: str) -> bool:
    said = first(text, "tie_word_embeddings")
    if said is None:
        said = first(config, "tie_word_embeddings")
    if said is None:  # what transformers takes for these, whose configs leave defaults out
        return model_type.startswith(("gemma", "cohere", "gpt2", "falcon", "qwen2_vl_tied"))
    return bool(said)


def _kv_heads(text: Config, heads: int) -> int:
    if text.get("model_type") == "falcon" and not text.get("new_decoder_architecture"):
        return 1 if text.get("multi_query", True) else heads
    return int(
        first(text, "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
        or heads
    )


def _intermediate(text: Config, hidden: int) -> int:
    found = first(text, "ffn_hidden_size", "n_inner", "intermediate_size", "ffn_dim")
    return int(max(found) if isinstance(found, list) else found or 4 * hidden)


def _experts(text: Config) -> Experts | None:
    count = first(text, "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    if isinstance(count, list):
        count = max(count)
    if not count or int(count) < 2:
        return None
    each = first(text, "moe_intermediate_size", "expert_intermediate_size") or text.get(
        "intermediate_size"
    )
    each = int(max(each) if isinstance(each, list) else each or 0)
    shared = first(text, "shared_expert_intermediate_size", "shared_intermediate_size")
    if shared is None:
        shared = int(first(text, "n_shared_experts", "moe_num_shared_experts") or 0) * each
    per_token = first(text, "num_experts_per_tok", "num_experts_per_token", "moe_k", "top_k") or 1
    per_token = max(per_token) if isinstance(per_token, list) else per_token
    return Experts(int(count), int(per_token), each, int(shared))


def _moe_layers(text: Config, model_type: str, count: int) -> frozenset[int]:
    """The layers with experts; the rules differ by family, as their configs name them."""
    layers = range(count)
    if isinstance(kinds := text.get("mlp_layer_types"), list):
        return frozenset(i for i, kind in enumerate(kinds[:count]) if kind in ("sparse", "moe"))
    if (first := text.get("first_k_dense_replace")) is not None:
        every = int(text.get("moe_layer_freq") or 1)
        return frozenset(i for i in layers if i >= int(first) and i % every == 0)
    if text.get("expert_layer_period"):
        period, offset = int(text["expert_layer_period"]), int(text.get("expert_layer_offset") or 0)
        return frozenset(i for i in layers if i % period == offset)
    if text.get("interleave_moe_layer_step"):
        step = int(text["interleave_moe_layer_step"])
        return frozenset(i for i in layers if (i + 1) % step == 0)
    dense = set(text.get("mlp_only_layers") or ())
    step = int(text.get("decoder_sparse_step") or 1)
    return frozenset(i for i in layers if i not in dense and (i + 1) % step == 0)
