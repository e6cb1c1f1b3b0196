"""Kimi-VL (MoonViT) and Kimi-K2.5 and K3 (its form for frames): patches of 3 x 4 x 4 pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers
from vllm.model_executor.models.moonvit import Rope2DPosEmb
from vllm.platforms import current_platform

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, on_host

PATCH = 4
TABLE = 8
"""Rows and columns of the position table."""
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
}
TABLES = {"init_pos_emb_height": TABLE, "init_pos_emb_width": TABLE}


def kimi_vl(architecture: str) -> Any:
    return config_class("KimiVLConfig")(
        vision_config={"patch_size": PATCH, **TABLES, **SIZES},
        text_config=TEXT | {"model_type": "deepseek_v2"},
    )


def k25(architecture: str) -> Any:
    """The same names for both forms of the configuration, vLLM's and that of transformers."""
    vision = {
        "patch_size": PATCH,
        "merge_kernel_size": (2, 2),
        "pos_emb_height": TABLE,
        "pos_emb_width": TABLE,
        "pos_emb_time": 4,
        "init_pos_emb_time": 4,
        **TABLES,
        **SIZES,
        **{f"vt_{name}": value for name, value in SIZES.items()},
    }
    return config_class("Kimi_K25Config", "KimiK25Config")(
        vision_config=vision, text_config=TEXT | {"model_type": "deepseek_v3"}
    )


def k3(architecture: str) -> Any:
    vision = {f"vt_{name}": value for name, value in SIZES.items()}
    return config_class("KimiK3Config")(
        vision_config={
            "patch_size": PATCH,
            **TABLES,
            **vision,
            "qkv_hidden_size": 64,
            "text_hidden_size": TEXT["hidden_size"],
        },
        text_config=TEXT | {"model_type": "kimi_linear"},
    )


def grids(grid: Sequence[Sequence[int]]) -> Any:
    """Pixels of all patches, (patches, 3, 4, 4)."""
    patches = 0
    for item in grid:
        count = 1
        for size in item:
            count *= size
        patches += count
    return numbers(len(grid), patches, 3, PATCH, PATCH)


def kimi_vl_cases(config: Any) -> dict[str, Any]:
    """The first size of the second case is the position table's own."""
    return {
        f"{len(grid)} image": {"pixel_values": grids(grid), "image_grid_hws": on_host(grid)}
        for grid in ([[4, 6]], [[TABLE, TABLE], [2, 10], [6, 4]])
    }


def k25_cases(config: Any) -> dict[str, Any]:
    cases = {
        "1 image": [[1, 4, 6]],
        "3 image": [[1, TABLE, TABLE], [1, 2, 10], [1, 6, 4]],
        "video": [[3, 4, 6], [2, TABLE, TABLE]],
    }
    return {
        case: {"pixel_values": grids(grid), "grid_thws": on_host(grid)}
        for case, grid in cases.items()
    }


@contextmanager
def built_here() -> Iterator[None]:
    """Where the models name the platform's device, the one that they are built on is meant."""
    make_rope = Rope2DPosEmb.__init__

    def make_rope_here(self: Any, *args: Any, **kwargs: Any) -> None:
        make_rope(self, *args, **kwargs)
        self.device = torch.get_default_device()

    device = staticmethod(torch.get_default_device)
    with (
        patch.object(type(current_platform), "current_device", device, create=True),
        patch.object(Rope2DPosEmb, "__init__", make_rope_here),
    ):
        _leave_inference_mode()
        yield


def _leave_inference_mode() -> None:
    """The stand-in cannot enter it; also when they run, so for good."""
    import vllm.model_executor.models.kimi_k25_vit as kimi_k25_vit
    from vllm.model_executor.models import kimi_k25, kimi_vl

    holders: list[tuple[Any, str]] = [
        (kimi_vl.KimiVLForConditionalGeneration, "_process_image_pixels"),
        (kimi_k25_vit, "mm_projector_forward"),
        (kimi_k25_vit, "vision_tower_forward"),
        (kimi_k25, "vision_tower_forward"),
    ]
    for holder, name in holders:
        function = getattr(holder, name)
        setattr(holder, name, getattr(function, "__wrapped__", function))


RECIPES = [
    Recipe(
        models=("KimiVLForConditionalGeneration",),
        towers=("MoonVitPretrainedModel",),
        config=kimi_vl,
        cases=kimi_vl_cases,
        patches=built_here,
    ),
    Recipe(
        models=("KimiK25ForConditionalGeneration",),
        config=k25,
        cases=k25_cases,
        patches=built_here,
    ),
    Recipe(
        models=("KimiK3ForConditionalGeneration",),
        config=k3,
        cases=k25_cases,
        patches=built_here,
    ),
]
