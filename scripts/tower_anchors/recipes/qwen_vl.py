"""Qwen-VL and all that is made from its classes: flat patches and a grid for each item."""

from __future__ import annotations

from typing import Any

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import ROPE, TEXT, config_class, grid_cases

QWEN_TEXT = TEXT | {"rope_parameters": ROPE}
MORE: dict[str, dict[str, Any]] = {
    "Alpamayo2Super": {"traj_ids": {}, "traj_vocab_size": 4},
    "Qwen4ExpForConditionalGeneration": {
        "text_config.hc_count": 2,
        "text_config.ple_layer_ids": [],
        "text_config.full_attention_interval": 1,
    },
    "Exaone4_5_ForConditionalGeneration": {"vision_config.num_key_value_heads": 1},
    "Glm5NextForConditionalGeneration": {
        "vision_config.swiglu_limit": 7.0,
        "vision_config.projection_intermediate_size": 64,
    },
    "ColQwen3_5": {"retrieval_attention_contract": "causal"},
    "D3ForSequenceClassification": {
        "decision_config": {"format_version": 1, "codes": ["A", "B"], "token_ids": [3, 4]}
    },
    "ClefFlashForJointSchema": {
        "joint_head_config": {
            "hidden_size": 64,
            "width": 32,
            "routing_layers": 1,
            "layers": 1,
            "heads": 1,
            "feedforward": 32,
        }
    },
}
"""What an architecture reads beyond the configuration of its family."""


def with_more(config: Any, architecture: str) -> Any:
    for path, value in MORE.get(architecture, {}).items():
        part, _, name = path.rpartition(".")
        setattr(getattr(config, part) if part else config, name, value)
    return config


def qwen3_vl(architecture: str) -> Any:
    config = config_class("Qwen3VLConfig")(
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 16,
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [0, 1],
        },
        text_config=QWEN_TEXT,
    )
    return with_more(config, architecture)


def qwen2_vl(architecture: str) -> Any:
    config = config_class("Qwen2VLConfig")(
        vision_config={
            "depth": 3,
            "embed_dim": 64,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 14,
        },
        text_config=QWEN_TEXT,
    )
    return with_more(config, architecture)


def qwen2_5_vl(architecture: str) -> Any:
    config = config_class("Qwen2_5_VLConfig")(
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 14,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        text_config=QWEN_TEXT,
    )
    return with_more(config, architecture)


def glm4_1v(architecture: str) -> Any:
    config = config_class("Glm4vConfig")(
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_heads": 2,
            "out_hidden_size": 64,
            "image_size": 84,
            "patch_size": 14,
        },
        text_config=QWEN_TEXT,
    )
    return with_more(config, architecture)


RECIPES = [
    Recipe(
        models=("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        towers=("Qwen3_VisionTransformer",),
        config=qwen3_vl,
        cases=lambda config: grid_cases(3 * 2 * 16 * 16),
    ),
    Recipe(
        models=("Qwen2VLForConditionalGeneration",),
        towers=("Qwen2VisionTransformer",),
        config=qwen2_vl,
        cases=lambda config: grid_cases(3 * 2 * 14 * 14),
    ),
    Recipe(
        models=("Qwen2_5_VLForConditionalGeneration",),
        towers=("Qwen2_5_VisionTransformer",),
        config=qwen2_5_vl,
        cases=lambda config: grid_cases(3 * 2 * 14 * 14),
    ),
    Recipe(
        models=("Glm4vForConditionalGeneration",),
        towers=("Glm4vVisionTransformer",),
        config=glm4_1v,
        cases=lambda config: grid_cases(3 * 2 * 14 * 14),
    ),
]
