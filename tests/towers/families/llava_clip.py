"""LLaVA 1.5: `vision_tower` (CLIP) and `multi_modal_projector` are marked as tower.

Blocks: `vision_tower.vision_model.encoder.layers`, each entered by its `forward`. The last block
of the config is never built: the features come from the last but one, without its post-norm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import LlavaConfig
from vllm.model_executor.models.llava import (
    LlavaForConditionalGeneration,
    LlavaMultiModalProjector,
    init_vision_tower_for_llava,
)

from tests.towers.family import Family, numbers


class LlavaTower(LlavaForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: LlavaConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.vision_tower = init_vision_tower_for_llava(
            config, quant_config=None, require_post_norm=False, prefix="vision_tower"
        )
        self.multi_modal_projector = LlavaMultiModalProjector(
            vision_hidden_size=config.vision_config.hidden_size,
            text_hidden_size=config.text_config.hidden_size,
            projector_hidden_act=config.projector_hidden_act,
            multimodal_projector_bias=config.multimodal_projector_bias,
            prefix="multi_modal_projector",
        )


def build() -> nn.Module:
    """Five of six CLIP blocks, 16 patches for each image."""
    return LlavaTower(
        LlavaConfig(
            vision_config={
                "model_type": "clip_vision_model",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 6,
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 8,
            },
            text_config={"model_type": "llama", "hidden_size": 96, "num_attention_heads": 4},
            vision_feature_layer=-2,
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Images (images, 3, 32, 32)."""
    return {
        case: numbers(1, images, 3, 32, 32, dtype=dtype)
        for case, images in (("small", 1), ("several", 5))
    }


def run(tower: Any, case: torch.Tensor) -> Any:
    """Embeddings (images, 16, 96)."""
    return tower.embed_multimodal(pixel_values=case)


FAMILY = Family(name="llava_clip", build=build, inputs=inputs, run=run)
