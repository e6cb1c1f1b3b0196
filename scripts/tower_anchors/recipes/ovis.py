"""Ovis (AIMv2 or SigLIP, then a table of visual words) and Ovis 2.5 and 2.6 (a SigLIP 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class

SIZE = 16
WORDS = 32
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 4,
}


def text() -> Any:
    return config_class("Qwen2Config")(**TEXT)


def ovis(architecture: str) -> Any:
    backbone = config_class("Aimv2VisionConfig")(**VISION)
    tokenizer = config_class("PretrainedConfig")(
        backbone_config=backbone,
        vocab_size=WORDS,
        hidden_stride=2,
        tokenize_function="softmax",
        drop_cls_token=False,
    )
    tokenizer.model_type = "aimv2_visual_tokenizer"
    return config_class("OvisConfig")(
        llm_config=text(), visual_tokenizer_config=tokenizer, hidden_size=64
    )


def ovis_cases(config: Any) -> dict[str, Any]:
    """An image of one tile has three indicators, one of three tiles four."""
    counts = {"1 image": [1], "2 image": [3, 1]}
    return {
        case: {
            "pixel_values": [numbers(tiles, tiles, 3, SIZE, SIZE) for tiles in images],
            "indicator_tokens": [
                torch.arange(WORDS - 5, WORDS - 5 + (4 if tiles > 1 else 3), device="cpu")
                for tiles in images
            ],
        }
        for case, images in counts.items()
    }


def ovis2_5(architecture: str) -> Any:
    vision = config_class("PretrainedConfig")(
        **VISION,
        num_channels=3,
        temporal_patch_size=1,
        num_patches=-1,
        hidden_stride=2,
        window_size=16,
        fullatt_block_indexes="1",
        preserve_original_pe=True,
        use_rope=True,
        attention_dropout=0.0,
        hidden_act="gelu_pytorch_tanh",
        layer_norm_eps=1e-6,
    )
    vision.model_type = "siglip2_navit"
    return config_class("PretrainedConfig")(
        vit_config=vision,
        text_config=text(),
        visual_vocab_size=WORDS,
        hidden_size=64,
        model_type="ovis2_5",
    )


def ovis2_5_cases(config: Any) -> dict[str, Any]:
    grids = {"1 image": [[1, 4, 4]], "2 image": [[1, 4, 4], [1, 2, 6]]}
    return {
        case: {
            "pixel_values": [numbers(h * w, t * h * w, 48) for t, h, w in images],
            "indicator_tokens": [torch.tensor([28, 29], device="cpu") for _ in images],
            "grids": [torch.tensor([grid], device="cpu") for grid in images],
        }
        for case, images in grids.items()
    }


@contextmanager
def any_language_model() -> Iterator[None]:
    """They ask whether theirs, which is not built, can be split in stages."""
    import vllm.model_executor.models.ovis
    import vllm.model_executor.models.ovis2_5

    models = vllm.model_executor.models
    with ExitStack() as stack:
        for module in (models.ovis, models.ovis2_5):
            stack.enter_context(patch.object(module, "supports_pp", lambda _: True))
        yield


RECIPES = [
    Recipe(
        models=("Ovis",),
        towers=("AIMv2Model",),
        config=ovis,
        cases=ovis_cases,
        patches=any_language_model,
    ),
    Recipe(models=("Ovis2_5",), config=ovis2_5, cases=ovis2_5_cases, patches=any_language_model),
]
