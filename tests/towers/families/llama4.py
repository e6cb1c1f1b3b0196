"""Llama 4: `vision_model` and `multi_modal_projector` are marked as tower.

Blocks: `vision_model.model.layers`, each entered by its `forward`, which returns a tuple; the
whole `vision_model` is decorated for compile, not the block. `vision_model.vision_adapter.mlp`
holds two more linears. All blocks share one rotary embedding, which has no parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Llama4Config
from vllm.model_executor.models.mllama4 import (
    Llama4ForConditionalGeneration,
    Llama4MultiModalProjector,
    Llama4VisionModel,
)

from tests.towers.family import Family, numbers


class Llama4Tower(Llama4ForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: Llama4Config) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.use_data_parallel = False
        self.vision_model = Llama4VisionModel(config.vision_config, prefix="vision_model")
        self.multi_modal_projector = Llama4MultiModalProjector(
            config, prefix="multi_modal_projector"
        )


def build() -> nn.Module:
    """Five blocks; 16 patches of a tile become 4 tokens."""
    return Llama4Tower(
        Llama4Config(
            vision_config={
                "hidden_size": 64,
                "intermediate_size": 256,  # also 2 x 2 patches for the adapter
                "num_hidden_layers": 5,
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 8,
                "projector_input_dim": 128,
                "projector_output_dim": 128,
                "vision_output_dim": 128,
            },
            text_config={"hidden_size": 96, "num_attention_heads": 4},
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the tiles of all images (tiles, 3, 32, 32) and the tiles of each image."""
    counts = {"small": [1], "several": [5, 1, 3]}
    return {
        case: {
            "tiles": numbers(1, sum(tiles), 3, 32, 32, dtype=dtype),
            "count": tiles,
        }
        for case, tiles in counts.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image."""
    count = torch.tensor(case["count"], device="cpu")  # the model keeps it there
    return tower.embed_multimodal(
        pixel_values=case["tiles"],
        patches_per_image=count,
        aspect_ratios=torch.ones(len(count), 2, dtype=torch.int64, device="cpu"),
    )


FAMILY = Family(name="llama4", build=build, inputs=inputs, run=run)
