"""What each layer of a model keeps of a request: keys and values, a state, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rig.memory.config_keys import Config, first, need

AttentionKind = Literal["full", "sliding", "chunked", "mla"]
StateKind = Literal["mamba1", "mamba2", "gdn", "conv"]


@dataclass(frozen=True)
class Attention:
    """What an attention layer keeps of each token. `window` in tokens, of a sliding or chunked one.

    For MLA `head_size` is the latent and its rotary part together, kept once and not split.
    """

    kind: AttentionKind
    heads: int
    kv_heads: int
    head_size: int
    value_head_size: int
    window: int = 0


@dataclass(frozen=True)
class State:
    """What a recurrent layer keeps of each request, whatever its length.

    `groups` and `key_*` are the B/C groups of Mamba 2, or the key heads of a gated delta net.
    """

    kind: StateKind
    inner: int  # values per token inside
    state: int = 0
    heads: int = 0
    head_size: int = 0
    groups: int = 0
    key_head_size: int = 0
    kernel: int = 4


_WINDOW_IN_ALL = frozenset({"mistral", "mixtral", "phi3", "starcoder2", "phimoe"})
"""Types whose `sliding_window` holds for each layer, where no layer types are given."""
_NEVER_MLA = frozenset({"longcat_next"})


def read_layers(
    text: Config, model_type: str, count: int, heads: int, kv_heads: int, head_size: int
) -> list[Attention | State | None]:
    """Read what each of `count` layers keeps; the heads are those of the whole model."""
    kinds = layer_kinds(text, model_type, count)
    window = int(first(text, "sliding_window", "window_size", "attention_chunk_size") or 0)
    found: list[Attention | State | None] = []
    for kind in kinds:
        if kind == "full" and text.get("kv_lora_rank") and model_type not in _NEVER_MLA:
            latent = int(text["kv_lora_rank"]) + int(text.get("qk_rope_head_dim") or 0)
            found.append(Attention("mla", heads, 1, latent, 0))
        elif kind == "full":
            found.append(_full(text, model_type, heads, kv_heads, head_size))
        elif kind in ("sliding", "chunked") and window:
            attention: AttentionKind = "sliding" if kind == "sliding" else "chunked"
            found.append(Attention(attention, heads, kv_heads, head_size, head_size, window))
        elif kind in ("sliding", "chunked"):
            found.append(Attention("full", heads, kv_heads, head_size, head_size))
        elif kind == "none":
            found.append(None)
        else:
            found.append(_state(text, kind))
    return found


def _full(text: Config, model_type: str, heads: int, kv_heads: int, head_size: int) -> Attention:
    """Full attention, whose heads are others than those of sliding layers in a few families."""
    if model_type.startswith("gemma4") and text.get("global_head_dim"):
        head_size = int(text["global_head_dim"])
        kv_heads = int(text.get("num_global_key_value_heads") or kv_heads)
    value = int(text.get("v_head_dim") or head_size) if "kv_lora_rank" not in text else head_size
    return Attention("full", heads, kv_heads, head_size, value)


_KINDS = {
    **{"full_attention": "full", "attention": "full", "global": "full", "*": "full"},
    **{"sliding_attention": "sliding", "local": "sliding", "chunked_attention": "chunked"},
    **{"linear_attention": "gdn", "mamba": "mamba2", "M": "mamba2", "mamba2": "mamba2"},
    **{"conv": "conv", "recurrent": "none", "-": "none", "mlp": "none", "moe": "none", "E": "none"},
}


def layer_kinds(text: Config, model_type: str, count: int) -> list[str]:
    """The kind of each layer: full, sliding, chunked, none, or one of `StateKind`."""
    listed = first(text, "layer_types", "layers_block_type", "hybrid_override_pattern")
    if listed is not None:
        kinds = [_KINDS.get(str(kind), "full") for kind in listed][:count]
        recurrent = _recurrent(text, model_type)
        kinds = [recurrent if kind in ("gdn", "mamba2") else kind for kind in kinds]
        if text.get("sliding_window") is None and "attention_chunk_size" not in text:
            kinds = ["full" if kind == "sliding" else kind for kind in kinds]
        return kinds + ["full"] * (count - len(kinds))
    if text.get("attn_layer_period"):  # Jamba
        period, offset = int(text["attn_layer_period"]), int(text.get("attn_layer_offset") or 0)
        return ["full" if i % period == offset else "mamba1" for i in range(count)]
    if isinstance(text.get("attn_layer_indices"), list):  # Bamba
        return ["full" if i in text["attn_layer_indices"] else "mamba2" for i in range(count)]
    if text.get("full_attention_interval"):  # Qwen3-Next, Qwen3.5
        every = int(text["full_attention_interval"])
        return ["full" if (i + 1) % every == 0 else "gdn" for i in range(count)]
    if model_type in ("mamba", "falcon_mamba"):
        return ["mamba1"] * count
    if model_type == "mamba2":
        return ["mamba2"] * count
    return _windows(text, model_type, count)


def _recurrent(text: Config, model_type: str) -> str:
    """The kind of a model's recurrent layers: configs call all of them linear or Mamba."""
    if "linear_num_value_heads" in text:
        return "gdn"
    return "mamba1" if model_type == "jamba" else "mamba2"


def _windows(text: Config, model_type: str, count: int) -> list[str]:
    if not text.get("sliding_window"):
        return ["full"] * count
    if model_type == "gemma2" or model_type == "gpt_oss":
        return ["full" if i % 2 else "sliding" for i in range(count)]
    if model_type.startswith(("gemma3", "cohere2", "gemma4")):
        every = int(text.get("sliding_window_pattern") or text.get("_sliding_window_pattern") or 6)
        return ["full" if (i + 1) % every == 0 else "sliding" for i in range(count)]
    if model_type in _WINDOW_IN_ALL:
        return ["sliding"] * count
    if text.get("use_sliding_window"):
        first = int(text.get("max_window_layers") or 0)
        return ["sliding" if i >= first else "full" for i in range(count)]
    return ["full"] * count


def _state(text: Config, kind: str) -> State:
    hidden = int(first(text, "hidden_size", "d_model") or 0)
    if kind == "gdn":
        heads = need(text, "how many value heads linear attention has", "linear_num_value_heads")
        size = need(text, "how large those are", "linear_value_head_dim")
        return State(
            "gdn",
            inner=heads * size,
            heads=heads,
            head_size=size,
            groups=need(text, "how many key heads it has", "linear_num_key_heads"),
            key_head_size=need(text, "how large those are", "linear_key_head_dim"),
            kernel=int(text.get("linear_conv_kernel_dim") or 4),
        )
    if kind == "conv":
        inner = int(first(text, "conv_dim", "hidden_size") or hidden)
        return State("conv", inner=inner, kernel=int(first(text, "conv_L_cache") or 3))
    kernel = int(first(text, "mamba_d_conv", "conv_kernel") or 4)
    size = int(first(text, "mamba_d_state", "ssm_state_size", "state_size") or 16)
    expand = float(first(text, "mamba_expand", "expand") or 2)
    inner = int(first(text, "mamba_d_ssm", "mamba_intermediate_size") or expand * hidden)
    if kind == "mamba1":
        return State("mamba1", inner=inner, state=size, kernel=kernel)
    heads = int(first(text, "mamba_n_heads", "mamba_num_heads", "num_heads") or 1)
    each = first(text, "mamba_d_head", "mamba_head_dim", "head_dim")
    each = inner // heads if each in (None, "auto") else int(each)
    return State(
        "mamba2",
        inner=heads * each,
        state=size,
        heads=heads,
        head_size=each,
        groups=int(first(text, "mamba_n_groups", "n_groups") or 1),
        kernel=kernel,
    )
