"""Images and videos as the Qwen-VL line of models takes them: flat patches and a grid for each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.towers.family import numbers

Grid = list[list[int]]

CASES: dict[str, Grid] = {
    "one image": [[1, 4, 4]],
    "wide image": [[1, 6, 20]],
    "several images": [[1, 8, 12], [1, 4, 4], [1, 2, 6]],
    "image and video": [[1, 4, 8], [3, 4, 6]],
}
"""Frames, rows and columns of patches of each item."""


def grid_inputs(dtype: torch.dtype, patch_values: int) -> dict[str, dict[str, Any]]:
    """All cases: pixels of shape (patches, patch_values) and their grids."""
    return {
        case: {
            "pixel_values": numbers(
                len(case), sum(t * h * w for t, h, w in grid), patch_values, dtype=dtype
            ),
            "grid_thw": grid,
        }
        for case, grid in CASES.items()
    }


def run_grid(
    tower: nn.Module, inputs: dict[str, Any], as_list: bool = False
) -> tuple[torch.Tensor, ...]:
    """One embedding an item, of shape (patches / merged, features).

    The models keep the grid on the host and hand it over as a tensor or, with `as_list`, a list.
    """
    grid = inputs["grid_thw"]
    on_host = torch.tensor(grid, device="cpu")
    embeddings = tower(inputs["pixel_values"], grid_thw=grid if as_list else on_host)
    merged = tower.spatial_merge_size**2
    return tuple(embeddings.split([t * h * w // merged for t, h, w in grid]))
