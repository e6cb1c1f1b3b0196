"""Idefics3, SmolVLM and Aria (Idefics2's tower); LFM2-VL (a SigLIP 2 of packed patches)."""

from __future__ import annotations

from typing import Any

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, image_cases, on_host

SIZE = 40
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 5,
}


def idefics3(architecture: str) -> Any:
    names = {"SmolVLMForConditionalGeneration": "SmolVLMConfig"}
    return config_class(names.get(architecture, "Idefics3Config"))(
        vision_config=VISION,
        text_config=TEXT | {"model_type": "llama", "pad_token_id": 0},
        scale_factor=2,
        image_token_id=7,
    )


def aria(architecture: str) -> Any:
    return config_class("AriaConfig")(
        vision_config=VISION | {"model_type": "idefics3_vision"},
        text_config=TEXT | {"model_type": "aria_text", "moe_num_experts": 2},
        projector_patch_to_query_dict={64: 16},
    )


def masked_images(tiles: list[int], mask: str) -> dict[str, Any]:
    """Tiles of images, the last of each with a margin that is masked out."""
    count = sum(tiles)
    kept = torch.ones(count, SIZE, SIZE, dtype=torch.bool, device="cpu")
    kept[-1, SIZE // 2 :] = False
    return {"pixel_values": numbers(count, count, 3, SIZE, SIZE), mask: kept}


def idefics3_cases(config: Any) -> dict[str, Any]:
    return {
        f"{len(tiles)} image": masked_images(tiles, "pixel_attention_mask")
        | {"num_patches": on_host(tiles)}
        for tiles in ([1], [2, 1, 3])
    }


def aria_cases(config: Any) -> dict[str, Any]:
    return {f"{n} image": masked_images([1] * n, "pixel_mask") for n in (1, 3)}


def lfm2(architecture: str) -> Any:
    return config_class("Lfm2VlConfig")(
        vision_config={
            "model_type": "siglip2_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "patch_size": 4,
            "num_patches": 16,
        },
        text_config=TEXT | {"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"]},
        downsample_factor=2,
        projector_hidden_size=64,
        image_token_id=7,
    )


def lfm2_cases(config: Any) -> dict[str, Any]:
    """Tiles of their own sizes, their patches padded to one length."""
    shapes = {"1 image": ([[4, 6]], [1]), "2 image": ([[4, 6], [2, 4], [4, 4]], [2, 1])}
    return {
        case: {
            "pixel_values": numbers(len(sizes), len(sizes), 24, 48),
            "spatial_shapes": on_host(sizes),
            "num_patches": on_host(tiles),
        }
        for case, (sizes, tiles) in shapes.items()
    }


def vbert(architecture: str) -> Any:
    """SigLIP before a text encoder, for retrieval."""
    names = {"ColUltraVBertForRetrieval": ("ColUltraVBertConfig", "UltraVBertConfig")}
    return config_class(*names.get(architecture, ("ModernVBertConfig", "ColModernVBertConfig")))(
        vision_config=VISION | {"model_type": "siglip_vision_model"},
        text_config=TEXT | {"model_type": "modernbert"},
        pixel_shuffle_factor=2,
        image_token_id=7,
    )


RECIPES = [
    Recipe(
        models=("ColModernVBertForRetrieval",),
        config=vbert,
        cases=lambda config: image_cases(SIZE),
    ),
    Recipe(models=("ColUltraVBertForRetrieval",), config=vbert, cases=idefics3_cases),
    Recipe(
        models=("Idefics3ForConditionalGeneration",),
        towers=("Idefics3Model",),
        config=idefics3,
        cases=idefics3_cases,
    ),
    Recipe(models=("AriaForConditionalGeneration",), config=aria, cases=aria_cases),
    Recipe(models=("Lfm2VLForConditionalGeneration",), config=lfm2, cases=lfm2_cases),
]
