"""InternVL: `vision_model` and `mlp1` are marked as tower.

Blocks: `vision_model.encoder.layers`, each entered by its `forward` (decorated for compile). Every
block holds two bare parameters beside its linears and norms: `ls1` and `ls2`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig
from vllm.model_executor.models.internvl import InternVLChatModel

from tests.towers.family import Family, numbers

IMAGE_TOKEN = 7


class InternVLTower(InternVLChatModel):
    """The model without its language model."""

    def __init__(self, config: PretrainedConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.downsample_ratio = config.downsample_ratio
        self.ps_version = config.ps_version
        self.vision_model = self._init_vision_model(
            config, quant_config=None, prefix="vision_model"
        )
        self.mlp1 = self._init_mlp1(config)


def build() -> nn.Module:
    """Five blocks with normalised queries and keys, as in the 6B tower."""
    vision = PretrainedConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=5,
        num_attention_heads=4,
        image_size=28,
        patch_size=7,
        hidden_act="gelu",
        norm_type="rms_norm",
        layer_norm_eps=1e-6,
        qkv_bias=False,
        qk_normalization=True,
        initializer_factor=0.1,
    )
    config = PretrainedConfig(
        vision_config=vision,
        text_config=PretrainedConfig(hidden_size=96),
        select_layer=-1,
        downsample_ratio=0.5,
        ps_version="v2",
    )
    return InternVLTower(config)


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the tiles of all images (tiles, 3, 28, 28) and the tiles of each image."""
    counts = {"small": [1], "several": [3, 1, 2]}
    return {
        case: {
            "tiles": numbers(1, sum(tiles), 3, 28, 28, dtype=dtype),
            "count": tiles,
        }
        for case, tiles in counts.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image."""
    return tower.embed_multimodal(
        pixel_values_flat=case["tiles"],
        image_num_patches=torch.tensor(case["count"], device="cpu"),  # the model keeps it there
        image_token_id=IMAGE_TOKEN,
    )


FAMILY = Family(name="internvl", build=build, inputs=inputs, run=run)
