"""Pixtral, in Mistral's format and in that of transformers: images of their own sizes."""

from __future__ import annotations

from typing import Any

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, images_of

SIZES = {"1 image": [(16, 32)], "3 image": [(64, 48), (32, 32), (16, 64)]}


def pixtral(architecture: str) -> Any:
    """Every 2 x 2 patches become one token."""
    return config_class("PretrainedConfig")(
        vision_config=config_class("PretrainedConfig")(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_channels=3,
            image_size=64,
            patch_size=8,
            rope_theta=10000.0,
            image_token_id=7,
            adapter_bias=False,
            spatial_merge_size=2,
            add_pre_mm_projector_layer_norm=True,
            mm_projector_id="patch_merge",
        ),
        text_config=config_class("MistralConfig")(**TEXT),
        model_type="pixtral",
    )


def mistral3(architecture: str) -> Any:
    return config_class("Mistral3Config")(
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "head_dim": 32,
            "image_size": 64,
            "patch_size": 8,
        },
        text_config=TEXT | {"model_type": "mistral"},
        spatial_merge_size=2,
        vision_feature_layer=-1,
    )


def cases(name: str) -> dict[str, Any]:
    return {case: {name: images_of(sizes)} for case, sizes in SIZES.items()}


RECIPES = [
    Recipe(
        models=("PixtralForConditionalGeneration",),
        towers=("VisionTransformer",),
        config=pixtral,
        cases=lambda config: cases("images"),
    ),
    Recipe(
        models=("Mistral3ForConditionalGeneration",),
        towers=("PixtralHFVisionModel",),
        config=mistral3,
        cases=lambda config: cases("pixel_values"),
    ),
]
