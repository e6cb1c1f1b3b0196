"""Gemma 3: `vision_tower` (SigLIP) and `multi_modal_projector` are marked as tower.

Blocks: `vision_tower.vision_model.encoder.layers`, each entered by its `forward`. The projector's
weight is a bare parameter that its own `forward` multiplies with, not a linear.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Gemma3Config
from vllm.model_executor.models.gemma3_mm import (
    Gemma3ForConditionalGeneration,
    Gemma3MultiModalProjector,
)
from vllm.model_executor.models.siglip import SiglipVisionModel

from tests.towers.family import Family, numbers


class Gemma3Tower(Gemma3ForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: Gemma3Config) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.vision_tower = SiglipVisionModel(config.vision_config, None, prefix="vision_tower")
        self.multi_modal_projector = Gemma3MultiModalProjector(config)


def build() -> nn.Module:
    """Five SigLIP blocks; 16 patches of an image become 4 tokens."""
    return Gemma3Tower(
        Gemma3Config(
            text_config={"hidden_size": 96},
            vision_config={
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 5,
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 8,
            },
            mm_tokens_per_image=4,
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the crops of all images (crops, 3, 32, 32) and the crops of each image."""
    counts = {"small": [1], "several": [2, 1, 3]}
    return {
        case: {
            "crops": numbers(1, sum(crops), 3, 32, 32, dtype=dtype),
            "count": crops,
        }
        for case, crops in counts.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image."""
    return tower.embed_multimodal(
        pixel_values=case["crops"],
        num_patches=torch.tensor(case["count"], device="cpu"),  # the model keeps it there
    )


FAMILY = Family(name="gemma3", build=build, inputs=inputs, run=run)
