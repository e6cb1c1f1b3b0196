"""MiniMax M3: flat patches and a grid for each item, and Phi-4 with SigLIP 2."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import NotHere, Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, grid_cases, on_host


def minimax_m3(architecture: str) -> Any:
    from vllm.triton_utils import HAS_TRITON

    if not HAS_TRITON:
        raise NotHere("its rotary positions are made by a Triton kernel alone")
    base = config_class("PretrainedConfig")
    config = base(architectures=[architecture], projector_hidden_size=64)
    config.text_config = config_class("LlamaConfig")(**TEXT)
    config.vision_config = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_channels": 3,
        "patch_size": 4,
        "image_size": 32,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
    }
    return config


@contextmanager
def no_language_model() -> Iterator[None]:
    """It is built outside a mark."""
    model = importlib.import_module("vllm.models.minimax_m3.nvidia.model")
    with patch.object(model, "init_vllm_registered_model", Stub):
        yield


def phi4_siglip(architecture: str) -> Any:
    config = config_class("Phi3Config")(**TEXT, pad_token_id=0)
    config.mm_hidden_size = 64
    config.vision_config = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_patches": 16,
        "patch_size": 4,
    }
    return config


def phi4_cases(config: Any) -> dict[str, Any]:
    mask = torch.zeros(2, 24, dtype=torch.long)
    mask[0, :24], mask[1, :16] = 1, 1
    return {
        "2 image": {
            "pixel_values": numbers(1, 2, 24, 3 * 4 * 4),
            "pixel_attention_mask": mask,
            "spatial_shapes": on_host([[4, 6], [4, 4]]),
        }
    }


RECIPES = [
    Recipe(
        models=("MiniMaxM3SparseForConditionalGeneration",),
        config=minimax_m3,
        cases=lambda config: grid_cases(3 * 2 * 4 * 4),
        patches=no_language_model,
    ),
    Recipe(models=("Phi4ForCausalLMV",), config=phi4_siglip, cases=phi4_cases),
]
