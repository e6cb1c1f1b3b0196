"""MiniCPM-V 2.6: `vpm` (Idefics2 vision) and `resampler` are marked as tower.

Blocks: `vpm.encoder.layers`, each entered by its `forward`. The last block of the config is built
and dropped from the list afterwards, still within the mark. No parameter is shared.

The resampler has no block list, and two things in it cannot be streamed by their own `forward`:
`query` and `proj` are bare parameters, and the weight of `attn.out_proj`, though a linear layer's,
is read by `nn.MultiheadAttention`: that layer is never entered. Its position table is a buffer made
on the host; `load_weights` moves the whole resampler to the platform's device after loading.

MiniCPM-V 4.6 runs part of the blocks, a merger, then the others: see `minicpmv4_6`.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PretrainedConfig
from transformers.models.idefics2.configuration_idefics2 import Idefics2VisionConfig
from vllm.model_executor.models.minicpmv import MiniCPMV2_6

from tests.towers.family import Family, new_parameters_on_conversion, numbers

PATCH = 4
CASES = {
    "one image": [[(5, 6)]],
    "several images": [[(5, 6), (4, 4), (4, 7)], [(3, 9)], [(8, 2), (2, 2)]],
}
"""Of each image the slices, in rows and columns of patches."""


class MiniCPMVTower(MiniCPMV2_6):
    """The model without its language model."""

    def __init__(self, config: PretrainedConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.vpm = self.init_vision_module(config, prefix="vpm")
        with new_parameters_on_conversion():  # it is made in float16
            self.resampler = self.init_resampler(
                config.hidden_size, self.vpm.embeddings.embed_dim, prefix="resampler"
            )
        # As after loading, where the platform's device is; here where the tower is built.
        self.resampler.to(self.resampler.query.device)


def build() -> nn.Module:
    """Five of six blocks, and eight queries of one head (the resampler's heads are 128 wide)."""
    vision = Idefics2VisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        image_size=40,
        patch_size=PATCH,
        hidden_act="gelu_pytorch_tanh",
    )
    return MiniCPMVTower(
        PretrainedConfig(
            vision_config=vision, hidden_size=128, query_num=8, drop_vision_last_layer=True
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the pixels of each slice, its patches side by side (3, 4, 4 * patches)."""
    return {
        case: {
            "pixels": [
                [numbers(h * w, 3, PATCH, PATCH * h * w, dtype=dtype) for h, w in slices]
                for slices in images
            ],
            "grids": images,
        }
        for case, images in CASES.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (8 * slices, 128) for each image."""
    with (
        # A torch without CUDA cannot say whether a graph is captured.
        patch.object(torch.cuda, "is_current_stream_capturing", return_value=False),
        # The CPU has its own attention with a mask; every device has this one.
        sdpa_kernel(SDPBackend.MATH),
    ):
        return tower.embed_multimodal(
            pixel_values=case["pixels"],
            tgt_sizes=[torch.tensor(grid, device="cpu") for grid in case["grids"]],  # kept there
        )


FAMILY = Family(name="minicpmv", build=build, inputs=inputs, run=run)
