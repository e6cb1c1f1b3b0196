"""Qwen3-Omni, vision: like Qwen3-VL, but all deepstack mergers run after the last block."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers import Qwen3OmniMoeThinkerConfig
from vllm.model_executor.models.qwen3_omni_moe_thinker import Qwen3Omni_VisionTransformer

from tests.towers.family import Family
from tests.towers.grids import grid_inputs, run_grid


def build() -> nn.Module:
    config = Qwen3OmniMoeThinkerConfig(
        vision_config={
            "depth": 5,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 96,
            "patch_size": 16,
            "image_size": 96,
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [0, 2, 3],
            "apply_vit_abs_pos_embed": True,
        }
    )
    return Qwen3Omni_VisionTransformer(vision_config=config.vision_config, prefix="visual")


FAMILY = Family(
    name="qwen3_omni_vision",
    build=build,
    inputs=partial(grid_inputs, patch_values=3 * 2 * 16 * 16),
    run=run_grid,
)
