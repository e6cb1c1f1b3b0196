"""Pixtral in Mistral's format: four modules are marked as tower.

They are `vision_encoder`, `pre_mm_projector_norm`, `patch_merger` and `vision_language_adapter`.
Blocks: `vision_encoder.transformer.layers`, each entered by its `forward` (decorated for compile);
inside, `attention.forward` and `feed_forward.forward` are called by name, past any module hook.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.models.pixtral import (
    PatchMerger,
    PixtralForConditionalGeneration,
    VisionEncoderArgs,
    VisionLanguageAdapter,
    VisionTransformer,
)

from tests.towers.family import Family, numbers


class PixtralTower(PixtralForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, args: VisionEncoderArgs, text_hidden_size: int) -> None:
        nn.Module.__init__(self)
        self.vision_args = args
        self.vision_encoder = VisionTransformer(args, prefix="vision_encoder")
        self.pre_mm_projector_norm = RMSNorm(args.hidden_size, eps=1e-5)
        self.patch_merger = PatchMerger(
            vision_encoder_dim=args.hidden_size, spatial_merge_size=args.spatial_merge_size
        )
        self.vision_language_adapter = VisionLanguageAdapter(args, dim=text_hidden_size)


def build() -> nn.Module:
    """Five blocks; every 2 x 2 patches become one token, as in Mistral Small 3.1."""
    args = VisionEncoderArgs(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_channels=3,
        image_size=64,
        patch_size=8,
        rope_theta=10000.0,
        image_token_id=7,
        adapter_bias=False,
        spatial_merge_size=2,
        add_pre_mm_projector_layer_norm=True,
        mm_projector_id="patch_merge",
    )
    return PixtralTower(args, text_hidden_size=96)


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Images of their own sizes, each (3, height, width)."""
    sizes = {"small": [(16, 32)], "several": [(64, 48), (32, 32), (16, 64)]}
    return {
        case: [numbers(seed, 3, *size, dtype=dtype) for seed, size in enumerate(images)]
        for case, images in sizes.items()
    }


def run(tower: Any, case: list[torch.Tensor]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image."""
    return tower.embed_multimodal(images=case)


FAMILY = Family(name="pixtral", build=build, inputs=inputs, run=run)
