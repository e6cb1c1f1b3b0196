"""GLM-4.1V: a position table that is interpolated, blocks, a convolution and a gated merger."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers import Glm4vConfig
from vllm.model_executor.models.glm4_1v import Glm4vVisionTransformer

from tests.towers.family import Family
from tests.towers.grids import grid_inputs, run_grid


def build() -> nn.Module:
    config = Glm4vConfig(
        vision_config={
            "depth": 5,
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_heads": 2,
            "out_hidden_size": 96,
            "image_size": 84,
            "patch_size": 14,
        }
    )
    return Glm4vVisionTransformer(
        config.text_config, config.vision_config, norm_eps=1e-5, prefix="visual"
    )


FAMILY = Family(
    name="glm4_1v",
    build=build,
    inputs=partial(grid_inputs, patch_values=3 * 2 * 14 * 14),
    run=run_grid,
)
