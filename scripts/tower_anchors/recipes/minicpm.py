"""MiniCPM-V and MiniCPM-o: slices of images, their patches side by side; and sound."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import OnHost, Recipe
from tower_anchors.tiny import TEXT, config_class

PATCH = 14
SLICES = {"1 image": [[(5, 6)]], "3 image": [[(5, 6), (4, 4)], [(3, 9)], [(8, 2)]]}
"""Of each image the slices, in rows and columns of patches."""
MERGED = {"1 image": [[(4, 8)]], "3 image": [[(4, 8), (4, 4)], [(4, 12)], [(8, 4)]]}
HIDDEN = 128
"""The resampler's heads are 128 wide."""


def vision(kind: str) -> Any:
    return config_class(kind)(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=448,
        patch_size=PATCH,
        hidden_act="gelu_pytorch_tanh",
    )


def sliced(slices: dict[str, list[list[tuple[int, int]]]]) -> dict[str, Any]:
    return {
        case: {
            "pixel_values": [
                [numbers(h * w, 3, PATCH, PATCH * h * w) for h, w in image] for image in images
            ],
            "tgt_sizes": [OnHost(torch.tensor(image, device="cpu")) for image in images],
        }
        for case, images in slices.items()
    }


def minicpmv(architecture: str) -> Any:
    sizes = TEXT | {"hidden_size": HIDDEN, "head_dim": 64}
    return config_class("Qwen2Config")(
        **sizes,
        version="2.6",
        query_num=8,
        drop_vision_last_layer=False,
        vision_config=vision("Idefics2VisionConfig"),
        image_size=448,
    )


def minicpmo(architecture: str) -> Any:
    made = minicpmv(architecture)
    made.audio_config = config_class("WhisperConfig")(
        d_model=64,
        encoder_layers=3,
        encoder_attention_heads=2,
        encoder_ffn_dim=256,
        num_mel_bins=16,
        max_source_positions=20,
    )
    made.audio_config._attn_implementation = "sdpa"
    made.audio_pool_step, made.audio_chunk_length = 2, 0.1
    made.init_vision = made.init_audio = True
    return made


def minicpmo_cases(config: Any) -> dict[str, Any]:
    sound = {
        "audio_features": numbers(1, 2, 16, 40),
        "audio_feature_lens": [torch.tensor([n], device="cpu") for n in (40, 26)],
    }
    return {**sliced(SLICES), "2 audio": sound}


def no_graphs() -> AbstractContextManager[None]:
    """A torch without CUDA cannot say whether a graph is captured; also when a model runs."""
    torch.cuda.is_current_stream_capturing = lambda: False
    return nullcontext()


def minicpmv4_6(architecture: str) -> Any:
    """Blocks, a merger after the second of them, and the others; the last is dropped."""
    names = {
        "MiniCPMV4_7ForConditionalGeneration": ("MiniCPMV4_7Config",),
        "MiniCPMOcrForConditionalGeneration": ("MiniCPMOcrConfig", "MiniCPMV4_6Config"),
    }
    return config_class(*names.get(architecture, ("MiniCPMV4_6Config",)))(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "image_size": 448,
            "patch_size": PATCH,
        },
        text_config=TEXT | {"model_type": "qwen3_5_text"},
        insert_layer_id=1,
        drop_vision_last_layer=True,
        downsample_mode="16x",
    )


def merged(config: Any) -> dict[str, Any]:
    """This one wants the sizes on its device."""
    cases = sliced(MERGED)
    for case in cases.values():
        case["tgt_sizes"] = [sizes.tensor for sizes in case["tgt_sizes"]]
    return cases


RECIPES = [
    Recipe(
        models=(
            "MiniCPMV4_6ForConditionalGeneration",
            "MiniCPMV4_7ForConditionalGeneration",
            "MiniCPMOcrForConditionalGeneration",
        ),
        config=minicpmv4_6,
        cases=merged,
    ),
    Recipe(
        models=("MiniCPMV",),
        config=minicpmv,
        cases=lambda config: sliced(SLICES),
        patches=no_graphs,
    ),
    Recipe(models=("MiniCPMO",), config=minicpmo, cases=minicpmo_cases, patches=no_graphs),
]
