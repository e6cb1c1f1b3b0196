"""Sizes that recipes share, and the inputs that many models take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import NotHere, OnHost

TEXT: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
}
"""Of a language model, which is not built: only its features' size matters."""

VISION: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
"""Of a tower whose configuration has the usual names: 16 patches for an image."""

ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
"""For models that tell rows, columns and frames apart."""

GRIDS: dict[str, list[list[list[int]]]] = {
    "image": [[[1, 4, 4]], [[1, 8, 12], [1, 4, 4], [1, 2, 6]]],
    "video": [[[3, 4, 6]], [[1, 4, 8], [2, 4, 4]]],
}
"""Frames, rows and columns of patches of each item of each case, by modality."""


def grid_cases(
    patch_values: int, modalities: Iterable[str] = ("image", "video")
) -> dict[str, dict[str, Any]]:
    """Cases of models that take flat patches and a grid for each item.

    Args:
        patch_values: numbers in a patch: pixels of shape (patches, patch_values).
    """
    names = {"image": "pixel_values", "video": "pixel_values_videos"}
    return {
        f"{len(grid)} {modality}": {
            names[modality]: numbers(len(grid), sum(t * h * w for t, h, w in grid), patch_values),
            f"{modality}_grid_thw": on_host(grid),
        }
        for modality in modalities
        for grid in GRIDS[modality]
    }


def image_cases(size: int, name: str = "pixel_values", channels: int = 3) -> dict[str, Any]:
    """Cases of models whose images are all of one size: (images, 3, size, size)."""
    return {f"{n} image": {name: numbers(n, n, channels, size, size)} for n in (1, 3)}


def on_host(values: Any) -> OnHost:
    """Numbers that stay on the host, as vLLM keeps grids and lengths."""
    return OnHost(torch.tensor(values, device="cpu"))


def images_of(sizes: Sequence[tuple[int, int]], channels: int = 3) -> list[torch.Tensor]:
    """Images of their own sizes, each (3, height, width)."""
    return [numbers(i, channels, *size) for i, size in enumerate(sizes)]


def config_class(*names: str) -> Any:
    """The first of these configuration classes that transformers or vLLM has.

    Raises:
        NotHere: none is there in this release.
    """
    import transformers
    import vllm.transformers_utils.configs as configs

    for name in names:
        for package in (transformers, configs):
            try:
                return getattr(package, name)
            except (AttributeError, ImportError):
                continue
    raise NotHere(f"no configuration class {' or '.join(names)} in this environment")
