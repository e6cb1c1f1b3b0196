"""Qwen2-VL: blocks and one merger."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers import Qwen2VLConfig
from vllm.model_executor.models.qwen2_vl import Qwen2VisionTransformer

from tests.towers.family import Family
from tests.towers.grids import grid_inputs, run_grid


def build() -> nn.Module:
    config = Qwen2VLConfig(
        vision_config={
            "depth": 5,
            "embed_dim": 64,
            "hidden_size": 96,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 14,
        }
    )
    return Qwen2VisionTransformer(config.vision_config, prefix="visual")


FAMILY = Family(
    name="qwen2_vl",
    build=build,
    inputs=partial(grid_inputs, patch_values=3 * 2 * 14 * 14),
    run=run_grid,
)
