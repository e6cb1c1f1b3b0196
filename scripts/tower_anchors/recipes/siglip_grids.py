"""Towers of plain blocks, as SigLIP's, that take patches of any grid."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from tower_anchors.recipe import Recipe
from tower_anchors.recipes.packed_patches import PATCH, square_cases, with_vision
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, on_host

SIGLIP: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_channels": 3,
    "image_size": 6 * PATCH,
    "patch_size": PATCH,
    "spatial_merge_size": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}


def onevision2(architecture: str) -> Any:
    # Its three rotary axes want heads of a multiple of 32.
    return with_vision(SIGLIP | {"hidden_size": 128})


def siglip(architecture: str) -> Any:
    return with_vision(SIGLIP)


def isaac(architecture: str) -> Any:
    return config_class("IsaacConfig")(
        text_config=TEXT,
        vision_config=SIGLIP | {"num_patches": 36, "pixel_shuffle_scale_factor": 2},
        pixel_shuffle_scale=2,
        **TEXT,
    )


def positioned_cases(config: Any) -> dict[str, dict[str, Any]]:
    """Each patch with its place: frame, row and column."""
    cases: dict[str, dict[str, Any]] = square_cases(flat=True) | square_cases(("video",), flat=True)
    for case in cases.values():
        kind = "videos" if "video_grid_thw" in case else ""
        grids = case["video_grid_thw" if kind else "image_grid_thw"].tensor.tolist()
        places = [torch.cartesian_prod(*(torch.arange(n) for n in grid)) for grid in grids]
        case["patch_positions_videos" if kind else "patch_positions"] = torch.cat(places)
        if kind:
            case["video_num_frames"] = on_host([grid[0] for grid in grids])
    return cases


def paddle_cases(config: Any) -> dict[str, dict[str, Any]]:
    from vllm.model_executor.models.paddleocr_vl import PaddleOCRVLForConditionalGeneration

    cases = square_cases()
    encode = inspect.signature(PaddleOCRVLForConditionalGeneration.encode_image)
    if encode.parameters["image_grid_thw"].annotation is torch.Tensor:
        for case in cases.values():  # up to 0.32 it takes the patches image by image
            sizes = case["image_grid_thw"].tensor.prod(-1).tolist()
            case["pixel_values"] = list(case["pixel_values"].split(sizes))
    return cases


def keye_cases(config: Any) -> dict[str, dict[str, Any]]:
    cases = square_cases(("image", "video"))
    for case in cases.values():
        if "video_grid_thw" in case:  # only one of the two models asks how many
            case["num_frames"] = on_host([grid[0] for grid in case["video_grid_thw"].tensor])
    return cases


@contextmanager
def language_weight() -> Iterator[None]:
    """Isaac asks the first weight of its language model, so the stub gets one."""
    made = Stub.__init__

    def with_weight(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self._parameters["weight"] = torch.nn.Parameter(torch.ones(1))

    with patch.object(Stub, "__init__", with_weight):
        yield


RECIPES = [
    Recipe(
        models=("LlavaOnevision2ForConditionalGeneration",),
        config=onevision2,
        cases=positioned_cases,
    ),
    Recipe(
        models=("PaddleOCRVLForConditionalGeneration",),
        config=siglip,
        cases=paddle_cases,
    ),
    Recipe(
        models=("KeyeForConditionalGeneration", "KeyeVL1_5ForConditionalGeneration"),
        config=siglip,
        cases=keye_cases,
    ),
    Recipe(
        models=("IsaacForConditionalGeneration",),
        config=isaac,
        cases=lambda config: square_cases(flat=True),
        patches=language_weight,
        options={"mm_encoder_only": False},
    ),
]
