"""MiniCPM-V 4.6: `vpm`, `vit_merger` and `merger` are marked as tower.

Blocks: `vpm.encoder.layers`, each entered by its `forward`, but never through `vpm.forward`: the
model itself runs the blocks up to `insert_layer_id`, the `vit_merger` and the other blocks, over
slices of the list, which are new lists at each encode. A request may ask for no merger ("4x"); a
batch of both kinds runs all blocks twice, once with the merger between them and once without.
`merger.mlp` is a second list, of one member. No parameter is shared.

The dtype of `vpm.embeddings.patch_embedding.weight` is read outside that layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PretrainedConfig
from transformers.models.idefics2.configuration_idefics2 import Idefics2VisionConfig
from vllm.model_executor.models.idefics2_vision_model import Idefics2VisionTransformer
from vllm.model_executor.models.minicpmv4_6 import (
    MiniCPMV4_6ForConditionalGeneration,
    MiniCPMV4_6Merger,
    MiniCPMV4_6ViTWindowAttentionMerger,
)

from tests.towers.family import Family, numbers

PATCH = 4
GRIDS = {
    "one image": [[(4, 8)]],
    "several images": [[(4, 8), (4, 4), (8, 8)], [(4, 12)], [(8, 4)]],
    "two modes": [[(4, 8)], [(4, 12)], [(8, 4)]],
}
"""Of each image the slices, in rows and columns of patches."""
WITH_MERGER = {"two modes": [True, False, True]}
"""Whether each image passes the merger within the blocks; without an entry all do."""


class MiniCPMV46Tower(MiniCPMV4_6ForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: PretrainedConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.vpm = Idefics2VisionTransformer(
            config.vision_config, apply_encoder_attention_mask=True, prefix="vpm"
        )
        self.vpm.encoder.layers = self.vpm.encoder.layers[:-1]  # drop_vision_last_layer
        self.vit_merger = MiniCPMV4_6ViTWindowAttentionMerger(
            config.vision_config, prefix="vit_merger"
        )
        self.merger = MiniCPMV4_6Merger(config.vision_config.hidden_size, llm_embed_dim=96)


def build() -> nn.Module:
    """Five of six blocks, the merger after the second."""
    vision = Idefics2VisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        image_size=48,
        patch_size=PATCH,
        hidden_act="gelu_pytorch_tanh",
    )
    return MiniCPMV46Tower(
        PretrainedConfig(vision_config=vision, insert_layer_id=1, downsample_mode="16x")
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the pixels of each slice, its patches side by side (3, 4, 4 * patches)."""
    return {
        case: {
            "pixels": [
                [numbers(h * w, 3, PATCH, PATCH * h * w, dtype=dtype) for h, w in slices]
                for slices in images
            ],
            # This model wants the grids on its device.
            "grids": [torch.tensor(slices, device="cpu") for slices in images],
            "with_merger": WITH_MERGER.get(case),
        }
        for case, images in GRIDS.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (patches / 16 or 4, 96) for each image."""
    image_input = tower._parse_and_validate_vision_input(
        pixel_values=case["pixels"], tgt_sizes=case["grids"]
    )
    # The CPU has its own attention with a mask; every device has this one.
    with sdpa_kernel(SDPBackend.MATH):
        return tower._process_vision_input(image_input, use_vit_merger=case["with_merger"])


FAMILY = Family(name="minicpmv4_6", build=build, inputs=inputs, run=run)
