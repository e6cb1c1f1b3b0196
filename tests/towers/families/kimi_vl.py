"""Kimi-VL: `vision_tower` (MoonViT) and `multi_modal_projector` are marked as tower.

Blocks: `vision_tower.encoder.blocks`, each entered by its `forward`. No parameter is shared. The
position table `patch_embed.pos_emb.weight` is a bare parameter, which its own module interpolates;
`prepare_encoder_metadata` reads it outside any `forward`. No block's weight is read elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.model_executor.models.kimi_vl import (
    KimiVLForConditionalGeneration,
    KimiVLMultiModalProjector,
)
from vllm.model_executor.models.moonvit import MoonVitPretrainedModel
from vllm.transformers_utils.configs.kimi_vl import KimiVLConfig

from tests.towers.family import Family, numbers

PATCH = 4
CASES = {"one image": [(4, 6)], "several images": [(8, 8), (2, 10), (6, 4)]}
"""Rows and columns of patches of each image; (8, 8) is the position table's own size."""


class KimiVLTower(KimiVLForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: KimiVLConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.use_data_parallel = False
        self.vision_tower = MoonVitPretrainedModel(config.vision_config, prefix="vision_tower")
        # The rope is made where the platform computes; here that is where the tower is built.
        rope = self.vision_tower.encoder.rope_2d
        rope.device = self.vision_tower.patch_embed.pos_emb.weight.device
        self.multi_modal_projector = KimiVLMultiModalProjector(
            config, prefix="multi_modal_projector"
        )

    def _process_image_pixels(self, inputs: Any) -> Any:
        """As the model does: in inference mode, which the stand-in accelerator cannot enter."""
        process = super()._process_image_pixels
        on_cpu = inputs["pixel_values"].is_cpu
        return process(inputs) if on_cpu else process.__wrapped__(self, inputs)


def build() -> nn.Module:
    """Five blocks."""
    return KimiVLTower(
        KimiVLConfig(
            vision_config={
                "patch_size": PATCH,
                "init_pos_emb_height": 8,
                "init_pos_emb_width": 8,
                "num_attention_heads": 4,
                "num_hidden_layers": 5,
                "hidden_size": 64,
                "intermediate_size": 128,
            },
            text_config={"hidden_size": 96},
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the patches of all images (patches, 3, 4, 4) and each image's grid."""
    return {
        case: {
            "patches": numbers(1, sum(h * w for h, w in grid), 3, PATCH, PATCH, dtype=dtype),
            "grid": grid,
        }
        for case, grid in CASES.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (patches / 4, 96) for each image."""
    return tower.embed_multimodal(
        pixel_values=case["patches"],
        image_grid_hws=torch.tensor(case["grid"], device="cpu"),  # the model keeps it there
    )


FAMILY = Family(name="kimi_vl", build=build, inputs=inputs, run=run)
