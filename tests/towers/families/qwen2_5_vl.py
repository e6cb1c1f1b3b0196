"""Qwen2.5-VL: blocks that see a window, some that see all, one merger that undoes the windows."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers import Qwen2_5_VLConfig
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer

from tests.towers.family import Family
from tests.towers.grids import grid_inputs, run_grid


def build() -> nn.Module:
    config = Qwen2_5_VLConfig(
        vision_config={
            "depth": 5,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 96,
            "patch_size": 14,
            "window_size": 56,
            "fullatt_block_indexes": [1, 4],
        }
    )
    return Qwen2_5_VisionTransformer(config.vision_config, prefix="visual")


FAMILY = Family(
    name="qwen2_5_vl",
    build=build,
    inputs=partial(grid_inputs, patch_values=3 * 2 * 14 * 14),
    run=partial(run_grid, as_list=True),
)
