"""Makes any configuration tiny and keeps it consistent: for models that nobody has written of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LAYERS, HIDDEN, HEADS, HEAD_DIM, INNER = 2, 64, 2, 32, 128
MOST = 128
"""Of vocabularies and the like; what is smaller stays as it is."""

_RULES: tuple[tuple[int, tuple[str, ...]], ...] = (
    (
        LAYERS,
        (
            r"(num|n|encoder|decoder|vision|audio|vit)?_?(hidden_)?layers?(_num|_count)?",
            r"depth|n_layer",
        ),
    ),
    (HEADS, (r".*(kv|key_value|num|n|attention|query|encoder|decoder)_heads?(_num)?", r"n_head")),
    (HEAD_DIM, (r".*head_dim|head_size|kv_channels",)),
    (
        INNER,
        (
            r"(moe_|shared_expert_)?intermediate_size|.*ffn_(dim|hidden_size)",
            r"mlp_dim|inner_dim",
        ),
    ),
    (
        HIDDEN,
        (
            r"(.*_)?(hidden_size|hidden_dim|embed_size)|embed_dim|d_model|n_embd|width|dim",
            r"(projection|output|embedding|projector)_dim",
        ),
    ),
    (4, (r"num_(local_|routed_)?experts|n_routed_experts",)),
    (2, (r"num_experts_per_tok(en)?|moe_topk|top_k_experts",)),
)
_COMPILED = tuple((re.compile(p), value) for value, patterns in _RULES for p in patterns)
_AT_MOST = re.compile(r"vocab_size|.*vocab.*_size|max_source_positions")
_INDEXES = re.compile(r".*(_index(es)?|_layers|_layer_ids|_blocks)")


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration, tiny; parts of it too.

    Two rules make it consistent: what has one name has one size everywhere, and a list with an
    entry for each layer is cut with the layers. Indices of layers are those of layers there are.
    """
    layers = {v for k, v in config.items() if _value_of(k) == LAYERS and isinstance(v, int)}
    return {key: _shrunk(key, value, layers) for key, value in config.items()}


def _shrunk(key: str, value: Any, layers: set[int]) -> Any:
    if isinstance(value, Mapping):
        return shrink(value) if not key.endswith(("label", "2id")) else dict(value)
    if isinstance(value, (list, tuple)):
        return _shrunk_list(key, value, layers)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if _AT_MOST.fullmatch(key):
        return min(value, MOST)
    wanted = _value_of(key)
    if wanted is not None:
        return min(value, wanted) if value > 0 else value
    if key in ("image_size", "img_size"):
        return min(value, 64)
    return value


def _shrunk_list(key: str, value: Any, layers: set[int]) -> Any:
    if value and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        if _INDEXES.fullmatch(key):
            return type(value)(sorted({min(v, LAYERS - 1) for v in value if v >= -LAYERS}))
        if key in ("image_size", "img_size"):
            return type(value)(min(v, 64) for v in value)
    if len(value) in layers:
        return value[:LAYERS]
    return type(value)(shrink(v) if isinstance(v, Mapping) else v for v in value)


def _value_of(key: str) -> int | None:
    return next((value for pattern, value in _COMPILED if pattern.fullmatch(key)), None)
