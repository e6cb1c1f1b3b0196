"""Gemma 4: `vision_tower` (Transformers' own class) and `embed_vision` are marked as tower.

Blocks: `vision_tower.encoder.layers`, each entered by its `forward`. `vision_tower.forward` never
is: the model calls `patch_embedder`, `encoder` and `pooler` itself, the encoder once for each
chunk of images of one size, so that one request passes the blocks several times. Each linear of a
block lies beside four scalar buffers that a checkpoint fills (the bounds it clips to).
"""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModel, Gemma4Config
from vllm.model_executor.models.gemma4_mm import (
    Gemma4ForConditionalGeneration,
    Gemma4MultimodalEmbedder,
)
from vllm.model_executor.models.transformers.utils import recursive_replace_linear

from tests.towers.family import Family, numbers

POOL = 3
PATCH = 3 * 4 * 4  # numbers in one patch
BOUNDS = {"input_min": -2.0, "input_max": 2.0, "output_min": -2.0, "output_max": 2.0}
FREE = TOTAL = 1_300_000
"""Bytes of memory that let two images of 54 patches into one chunk."""


class Gemma4Tower(Gemma4ForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: Gemma4Config) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.model_dtype = torch.get_default_dtype()
        self._enable_mm_lora = False
        # Transformers' constructor calls `torch.tensor`, which bypasses the stand-in accelerator.
        with torch.device("cpu"):
            self.vision_tower = AutoModel.from_config(config=config.vision_config)
        _move(self.vision_tower)
        self.embed_vision = Gemma4MultimodalEmbedder(
            config.vision_config, config.text_config, prefix="embed_vision"
        )
        recursive_replace_linear(self.vision_tower, None, prefix="vision_tower")


def _move(module: nn.Module) -> None:
    """Move a module to the default device; `.to` would assign between kinds of tensors."""
    device = torch.get_default_device()
    for child in module.modules():
        for name, parameter in child.named_parameters(recurse=False):
            child.register_parameter(name, nn.Parameter(parameter.detach().to(device)))
        for name, buffer in child.named_buffers(recurse=False):
            child._buffers[name] = buffer.to(device)


def build() -> nn.Module:
    """Five blocks with clipped linears and standardised output; 9 patches become one token."""
    tower = Gemma4Tower(
        Gemma4Config(
            vision_config={
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 5,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "head_dim": 16,
                "pooling_kernel_size": POOL,
                "patch_size": 4,
                "position_embedding_size": 32,
                "use_clipped_linears": True,
                "standardize": True,
            },
            text_config={"hidden_size": 96, "num_attention_heads": 4},
        )
    )
    for name, buffer in tower.named_buffers():
        name = name.rpartition(".")[2]
        if name in BOUNDS:
            buffer.fill_(BOUNDS[name])
        elif name in ("std_bias", "std_scale"):
            buffer.copy_(torch.linspace(0.5, 1.5, buffer.numel(), device="cpu"))
    return tower


def _positions(rows: int, columns: int, patches: int) -> torch.Tensor:
    """Each patch's (x, y), padded with (-1, -1) as the image processor does."""
    grid = [(x, y) for y, x in product(range(rows), range(columns))]
    return torch.tensor(grid + [(-1, -1)] * (patches - len(grid)), device="cpu")


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Images and frames in patches (patches, 48), each with its positions (patches, 2)."""
    grids = {
        "small": [(3, 6, 18)],
        "several": [(6, 9, 54), (6, 6, 36), (9, 6, 54), (6, 6, 54)],  # the last is padded
        "video": [(6, 6, 36)] * 5,
    }
    cases: dict[str, Any] = {}
    for seed, (case, images) in enumerate(grids.items()):
        pixels = [
            numbers(100 * seed + index, patches, PATCH, dtype=dtype)
            for index, (_, _, patches) in enumerate(images)
        ]
        cases[case] = {"pixels": pixels, "positions": [_positions(*image) for image in images]}
    return {**cases, "video": {**cases["video"], "frames": [3, 2]}}


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image or video."""
    with (
        # The CPU worker replaces this function too: there is no accelerator to ask.
        patch.object(torch.accelerator, "get_memory_info", lambda *_: (FREE, TOTAL)),
        # The CPU has a fused attention that rounds otherwise than that of any other device.
        sdpa_kernel(SDPBackend.MATH),
    ):
        if "frames" in case:
            return tower.embed_multimodal(
                pixel_values_videos=torch.stack(case["pixels"]),
                pixel_position_ids_videos=torch.stack(case["positions"]),
                video_frame_counts=torch.tensor(case["frames"], device="cpu"),
            )
        return tower.embed_multimodal(
            pixel_values=case["pixels"], pixel_position_ids=case["positions"]
        )


FAMILY = Family(name="gemma4", build=build, inputs=inputs, run=run)
