"""LLaVA, PaliGemma and Gemma 3: CLIP or SigLIP, then a projector; images of one size."""

from __future__ import annotations

from typing import Any

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, VISION, config_class, image_cases, on_host

SIZE = VISION["image_size"]


def llava(architecture: str) -> Any:
    return config_class("LlavaConfig")(
        vision_config=VISION | {"model_type": "clip_vision_model"},
        text_config=TEXT | {"model_type": "llama"},
        vision_feature_layer=-2,
    )


def paligemma(architecture: str) -> Any:
    return config_class("PaliGemmaConfig")(
        vision_config=VISION | {"model_type": "siglip_vision_model", "projection_dim": 64},
        text_config=TEXT | {"model_type": "gemma"},
        projection_dim=64,
    )


def gemma3(architecture: str) -> Any:
    return config_class("Gemma3Config")(
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        text_config=TEXT | {"model_type": "gemma3_text"},
        mm_tokens_per_image=4,
    )


def gemma3_cases(config: Any) -> dict[str, Any]:
    """One crop of each image."""
    cases = image_cases(SIZE)
    for count, case in ((1, "1 image"), (3, "3 image")):
        cases[case]["num_patches"] = on_host([1] * count)
    return cases


RECIPES = [
    Recipe(
        models=("LlavaForConditionalGeneration",),
        towers=("CLIPVisionModel",),
        config=llava,
        cases=lambda config: image_cases(SIZE),
    ),
    Recipe(
        models=("PaliGemmaForConditionalGeneration",),
        towers=("SiglipVisionModel",),
        config=paligemma,
        cases=lambda config: image_cases(SIZE),
    ),
    Recipe(
        models=("Gemma3ForConditionalGeneration",),
        config=gemma3,
        cases=gemma3_cases,
    ),
]
