"""Qwen3-VL-MoE: the class of Qwen3-VL's tower, with the configuration of the MoE models."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers import Qwen3VLMoeConfig
from vllm.model_executor.models.qwen3_vl_moe import Qwen3_VisionTransformer

from tests.towers.family import Family
from tests.towers.grids import grid_inputs, run_grid


def build() -> nn.Module:
    config = Qwen3VLMoeConfig(
        vision_config={
            "depth": 6,
            "hidden_size": 96,
            "intermediate_size": 160,
            "num_heads": 3,
            "out_hidden_size": 64,
            "patch_size": 16,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [1, 5],
        }
    )
    return Qwen3_VisionTransformer(config.vision_config, prefix="visual")


FAMILY = Family(
    name="qwen3_vl_moe",
    build=build,
    inputs=partial(grid_inputs, patch_values=3 * 2 * 16 * 16),
    run=run_grid,
)
