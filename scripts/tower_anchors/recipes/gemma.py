"""Gemma 4 (transformers' own tower) and its unified form (no tower, an embedder of patches)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers
from torch import nn
from transformers import AutoModel
from vllm.config import ModelConfig

from tower_anchors.recipe import Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, on_host

POOL = 3
PATCH = 4
GRIDS = {"1 image": [(3, 6, 18)], "3 image": [(6, 9, 54), (6, 6, 36), (6, 6, 54)]}
"""Of each image rows and columns of patches, and their number with what pads them."""


MEMORY = 1_300_000


def text(kind: str) -> dict[str, Any]:
    return TEXT | {"model_type": kind, "hidden_size_per_layer_input": 0}


def gemma4(architecture: str) -> Any:
    return config_class("Gemma4Config")(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "pooling_kernel_size": POOL,
            "patch_size": PATCH,
            "position_embedding_size": 32,
            "use_clipped_linears": True,
            "standardize": True,
        },
        text_config=text("gemma4_text"),
        audio_config=None,
    )


def positions(rows: int, columns: int, patches: int) -> torch.Tensor:
    """Each patch's (x, y), padded with (-1, -1) as the image processor does."""
    grid = [(x, y) for y, x in product(range(rows), range(columns))]
    return torch.tensor(grid + [(-1, -1)] * (patches - len(grid)), device="cpu")


def patch_cases(values: int) -> dict[str, Any]:
    cases: dict[str, Any] = {
        case: {
            "pixel_values": [numbers(n, n, values) for _, _, n in images],
            "pixel_position_ids": [positions(*image) for image in images],
        }
        for case, images in GRIDS.items()
    }
    cases["2 video"] = {
        "pixel_values_videos": numbers(5, 5, 36, values),
        "pixel_position_ids_videos": torch.stack([positions(6, 6, 36)] * 5),
        "video_frame_counts": on_host([3, 2]),
    }
    return cases


@contextmanager
def made_on_the_host() -> Iterator[None]:
    """Transformers makes tensors past the stand-in; its language model is named with its type."""
    import vllm.model_executor.models.gemma4_mm as module
    import vllm.model_executor.models.gemma4_unified as unified

    def from_config(**kwargs: Any) -> nn.Module:
        with torch.device("cpu"):
            tower = AutoModel.from_config(**kwargs)
        move(tower, torch.get_default_device())
        return tower

    with (
        patch.object(module, "AutoModel", SimpleNamespace(from_config=from_config)),
        patch.object(module, "init_vllm_registered_model", Stub),
        patch.object(unified, "init_vllm_registered_model", Stub),
        patch.object(ModelConfig, "try_get_generation_config", lambda _: {}),
    ):
        # There is no accelerator to ask when the model runs; this lets two images into a pass.
        torch.accelerator.get_memory_info = lambda *_: (MEMORY, MEMORY)
        yield


def move(tower: nn.Module, device: torch.device) -> None:
    """`Module.to` would assign between kinds of tensors."""
    for module in tower.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, nn.Parameter(parameter.detach().to(device)))
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = buffer.to(device)


def gemma4_unified(architecture: str) -> Any:
    return config_class("Gemma4UnifiedConfig")(
        vision_config={
            "patch_size": PATCH,
            "model_patch_size": PATCH * POOL,
            "mm_embed_dim": 64,
            "mm_posemb_size": 32,
            "hidden_size": 64,
            "output_proj_dims": 64,
        },
        text_config=text("gemma4_unified_text"),
        audio_config=None,
    )


RECIPES = [
    Recipe(
        models=("Gemma4UnifiedForConditionalGeneration",),
        config=gemma4_unified,
        cases=lambda _: patch_cases(3 * (PATCH * POOL) ** 2),
        patches=made_on_the_host,
    ),
    Recipe(
        models=("Gemma4ForConditionalGeneration",),
        config=gemma4,
        cases=lambda _: patch_cases(3 * PATCH * PATCH),
        patches=made_on_the_host,
    ),
]
