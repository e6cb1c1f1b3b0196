"""What the names of a checkpoint's weights say: which rule shares them out, and what they are."""

from __future__ import annotations

import functools
import re
from typing import Literal

Rule = Literal["column", "row", "kv", "qkv", "vocabulary", "whole"]

_COLUMN = """q_proj q_b_proj kv_b_proj gate_proj up_proj gate_up_proj w1 w3 w13 fc1 c_fc linear_fc1
linear_1 dense_h_to_4h fc_in in_proj in_proj_qkvz in_proj_ba in_proj_qkv in_proj_z in_proj_a
in_proj_b conv1d conv dt_proj A_log D dt_bias sinks wi wi_0 wi_1 wq gate_up_proj_blocks
gate_up_proj_scales gate_up_proj_bias up_gate_proj query input_linear"""
_ROW = """o_proj out_proj down_proj w2 fc2 c_proj dense dense_4h_to_h linear_fc2 linear_2 fc_out
x_proj wo proj output_linear down_proj_blocks down_proj_scales"""
RULES: dict[str, Rule] = {
    **dict.fromkeys(_COLUMN.split(), "column"),
    **dict.fromkeys(_ROW.split(), "row"),
    **dict.fromkeys(("k_proj", "v_proj", "wk", "wv", "key", "value"), "kv"),
    **dict.fromkeys(("qkv_proj", "query_key_value", "Wqkv", "c_attn", "qkv", "W_pack"), "qkv"),
    **dict.fromkeys(
        ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in"), "vocabulary"
    ),
    **dict.fromkeys(("lm_head", "embed_out", "output"), "vocabulary"),
}
HEADS = frozenset({"lm_head", "embed_out", "output"})
_PART_NAMES = """weight bias qweight qzeros scales g_idx weight_packed weight_scale weight_scale_inv
    weight_zero_point weight_shape weight_g_idx weight_global_scale weight_scale_2 input_scale
    input_global_scale k_scale v_scale"""
_PARTS = frozenset(_PART_NAMES.split())
SCALES = frozenset({"scales", "qzeros", "weight_scale", "weight_scale_inv", "weight_zero_point"})
ORDERS = frozenset({"g_idx", "weight_g_idx"})
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
TOWER = re.compile(
    r"^(?:model\.|thinker\.|transformer\.)*(?P<name>visual|vision_tower|vision_model|"
    r"vision_encoder|audio_tower|audio_encoder|audio_model|multi_modal_projector|mm_projector|"
    r"vision_embed_tokens|embed_vision|embed_audio|mlp1|vpm|apm|resampler|connector|"
    r"vision_projection|patch_merger|pre_mm_projector_norm)\."
)
NOT_LOADED = re.compile(
    r"rotary_emb\.inv_freq$|\.masked_bias$|(^|\.)h\.\d+\.attn\.bias$|position_ids$|^mtp\.|^model\.mtp"
)
KEPT_F32 = frozenset({"A_log", "e_score_correction_bias"})


@functools.cache
def leaf_and_part(name: str) -> tuple[str, str]:
    """The module that a weight belongs to, by its last name, and which part of it it is."""
    *path, last = name.rsplit(".", 2)
    if last in _PARTS and path:
        return path[-1], last
    return last, "weight"
