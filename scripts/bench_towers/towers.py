# mypy: disable-error-code="import-not-found"
"""Vision towers of Hugging Face transformers, with random weights: nothing is downloaded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    Qwen2_5_VLConfig,
    Qwen3VLConfig,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

SPREAD = 0.02
"""Standard deviation of the noise on every weight: no two blocks, and no bias, are alike."""


@dataclass(frozen=True)
class Recipe:
    """How to build a tower, and what to feed it.

    Args:
        build: returns the tower on the current default device, in the default dtype.
        inputs: (tower, rows, columns of patches, device, dtype) -> keyword arguments.
    """

    build: Callable[[], Any]
    inputs: Callable[[Any, int, int, torch.device, torch.dtype], dict[str, Any]]


def build_tower(recipe: Recipe, device: torch.device, dtype: torch.dtype) -> Any:
    """A tower on the host, every weight of it random and always the same on a kind of device.

    Args:
        device: where the random numbers are made, since that is fast on a GPU.
    """
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            tower = recipe.build()
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=SPREAD)
    return tower.eval().requires_grad_(False).to("cpu")


def grid(patches: int) -> tuple[int, int]:
    """Rows and columns of a picture of that many patches, both even, as square as can be.

    Args:
        patches: a multiple of 4.
    """
    quarter = patches // 4
    rows = next(d for d in range(math.isqrt(quarter), 0, -1) if quarter % d == 0)
    return 2 * rows, 2 * (quarter // rows)


def encode(tower: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """All tensors that a tower returns for one picture."""
    # Models take the arguments they know out of the dict that they are called with.
    output = tower(**inputs)
    tensors: list[torch.Tensor] = []
    for value in output.values():
        tensors += value if isinstance(value, list | tuple) else [value]
    return [tensor for tensor in tensors if tensor is not None]


def _with_sdpa(config: Any) -> Any:
    config._attn_implementation = "sdpa"
    return config


def _qwen_inputs(
    tower: Any, rows: int, columns: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    config = tower.config
    values = config.in_channels * config.temporal_patch_size * config.patch_size**2
    inputs = {
        "hidden_states": torch.randn(rows * columns, values, dtype=dtype, device=device),
        "grid_thw": torch.tensor([[1, rows, columns]], device=device),
    }
    return inputs | _qwen_positions(tower, rows, columns, device)


def _qwen_positions(tower: Any, rows: int, columns: int, device: torch.device) -> dict[str, Any]:
    """What the tower would compute from the grid, with a wait for the device in every block.

    Lengths stay on the host, where the attention of transformers reads them.
    """
    try:
        from transformers import vision_utils
    except ImportError:  # an older release: the tower computes them, at that price
        return {}
    merge = tower.spatial_merge_size
    picture = torch.tensor([[1, rows, columns]])
    positions = {
        "position_ids": vision_utils.get_vision_position_ids(picture, merge).to(device),
        "cu_seqlens": vision_utils.get_vision_cu_seqlens(picture),
    }
    if hasattr(tower, "window_size"):
        index, lengths = vision_utils.get_vision_window_index(
            picture, merge, tower.window_size, tower.patch_size
        )
        positions |= {"window_index": index.to(device), "cu_window_seqlens": lengths}
    if hasattr(tower, "interpolation_mode"):
        indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
            picture,
            num_grid_per_side=tower.num_grid_per_side,
            mode=tower.interpolation_mode,
            align_corners=tower.interpolation_align_corners,
            spatial_merge_size=merge,
        )
        positions |= {"interp_indices": indices.to(device), "interp_weights": weights.to(device)}
    return positions


def _siglip_inputs(
    tower: Any, rows: int, columns: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    side = tower.config.patch_size
    pixels = torch.randn(1, 3, rows * side, columns * side, dtype=dtype, device=device)
    return {"pixel_values": pixels, "interpolate_pos_encoding": True}


def _qwen3(**sizes: Any) -> Recipe:
    def build() -> Any:
        return Qwen3VLVisionModel(_with_sdpa(Qwen3VLConfig(vision_config=sizes).vision_config))

    return Recipe(build, _qwen_inputs)


def _qwen2_5(**sizes: Any) -> Recipe:
    def build() -> Any:
        config = Qwen2_5_VLConfig(vision_config=sizes).vision_config
        return Qwen2_5_VisionTransformerPretrainedModel(_with_sdpa(config))

    return Recipe(build, _qwen_inputs)


def _siglip(**sizes: Any) -> Recipe:
    def build() -> Any:
        return SiglipVisionModel(_with_sdpa(SiglipVisionConfig(**sizes)))

    return Recipe(build, _siglip_inputs)


REAL = {
    "qwen3-vl-8b": _qwen3(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        num_heads=16,
        patch_size=16,
        out_hidden_size=4096,
        deepstack_visual_indexes=[8, 16, 24],
    ),
    "qwen2.5-vl-7b": _qwen2_5(
        depth=32,
        hidden_size=1280,
        intermediate_size=3420,
        num_heads=16,
        patch_size=14,
        out_hidden_size=3584,
        window_size=112,
        fullatt_block_indexes=[7, 15, 23, 31],
    ),
    "siglip-so400m": _siglip(
        num_hidden_layers=27,
        hidden_size=1152,
        intermediate_size=4304,
        num_attention_heads=16,
        patch_size=14,
        image_size=384,
    ),
}
"""The towers that are measured, at the sizes of the published models."""

TINY = {
    "qwen3-vl-8b": _qwen3(
        depth=6,
        hidden_size=32,
        intermediate_size=64,
        num_heads=2,
        patch_size=4,
        out_hidden_size=48,
        num_position_embeddings=64,
        deepstack_visual_indexes=[1, 3],
    ),
    "qwen2.5-vl-7b": _qwen2_5(
        depth=6,
        hidden_size=32,
        intermediate_size=60,
        num_heads=2,
        patch_size=4,
        out_hidden_size=48,
        window_size=16,
        fullatt_block_indexes=[2, 5],
    ),
    "siglip-so400m": _siglip(
        num_hidden_layers=6,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=2,
        patch_size=4,
        image_size=32,
    ),
}
"""The same towers, small: they show that all works, in seconds."""
