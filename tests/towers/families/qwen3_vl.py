"""Qwen3-VL: blocks, mergers between them (deepstack), a last merger and a position table."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers import Qwen3VLConfig
from vllm.model_executor.models.qwen3_vl import Qwen3_VisionTransformer

from tests.towers.family import Family
from tests.towers.grids import grid_inputs, run_grid


def build() -> nn.Module:
    config = Qwen3VLConfig(
        vision_config={
            "depth": 5,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 96,
            "patch_size": 16,
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [0, 2, 3],
        }
    )
    return Qwen3_VisionTransformer(config.vision_config, prefix="visual")


FAMILY = Family(
    name="qwen3_vl",
    build=build,
    inputs=partial(grid_inputs, patch_values=3 * 2 * 16 * 16),
    run=run_grid,
)
