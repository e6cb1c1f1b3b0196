"""Mistral 3 (Pixtral in Hugging Face's format): `vision_tower` and `multi_modal_projector`.

Blocks: `vision_tower.transformer.layers`, each entered by its `forward` (decorated for compile).
The stem's `patch_conv.weight` is read outside its module's `forward`, which is never entered: the
images are projected by one matrix multiplication.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import nn
from transformers import Mistral3Config
from vllm.model_executor.layers.fusion.mm_input_norm import IdentityInputNorm
from vllm.model_executor.models.mistral3 import (
    Mistral3ForConditionalGeneration,
    Mistral3MultiModalProjector,
    init_vision_tower_for_mistral3,
)

from tests.towers.family import Family, numbers


class Mistral3Tower(Mistral3ForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: Mistral3Config) -> None:
        nn.Module.__init__(self)
        self.config = config
        # What a server has unless told otherwise; 0.31 knows of no norm of inputs.
        knows = "input_norm" in signature(init_vision_tower_for_mistral3).parameters
        input_norm: Any = {"input_norm": IdentityInputNorm()} if knows else {}
        self.vision_tower = init_vision_tower_for_mistral3(
            config,
            quant_config=None,
            **input_norm,
            require_post_norm=False,
            prefix="vision_tower",
        )
        self.multi_modal_projector = Mistral3MultiModalProjector(
            vision_hidden_size=config.vision_config.hidden_size,
            text_hidden_size=config.text_config.hidden_size,
            projector_hidden_act=config.projector_hidden_act,
            spatial_merge_size=config.spatial_merge_size,
            patch_size=config.vision_config.patch_size,
            multimodal_projector_bias=config.multimodal_projector_bias,
            prefix="multi_modal_projector",
        )


def build() -> nn.Module:
    """Five blocks; every 2 x 2 patches become one token."""
    return Mistral3Tower(
        Mistral3Config(
            vision_config={
                "model_type": "pixtral",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 5,
                "num_attention_heads": 4,
                "image_size": 64,
                "patch_size": 8,
                "hidden_act": "silu",
            },
            text_config={"model_type": "mistral", "hidden_size": 96, "num_attention_heads": 4},
            spatial_merge_size=2,
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Images of their own sizes, each (3, height, width)."""
    sizes = {"small": [(16, 32)], "several": [(64, 48), (32, 32), (16, 64)]}
    return {
        case: [numbers(seed, 3, *size, dtype=dtype) for seed, size in enumerate(images)]
        for case, images in sizes.items()
    }


def run(tower: Any, case: list[torch.Tensor]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image."""
    return tower.embed_multimodal(pixel_values=case)


FAMILY = Family(name="mistral3", build=build, inputs=inputs, run=run)
