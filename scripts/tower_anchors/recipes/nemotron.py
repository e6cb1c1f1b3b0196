"""Nemotron Nano and Omni (RADIO and Parakeet), Moondream 3, MiMo-V2-Omni."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, grid_cases, on_host

SIZE, BINS = 16, 16
"""Pixels of an image, mel bins of a clip."""


@contextmanager
def stub_with(**attributes: Any) -> Iterator[None]:
    """Give the stub of a language model what its model asks of it."""
    plain = Stub.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    with patch.object(Stub, "__init__", init):
        yield


def embeddings(indices: torch.Tensor) -> torch.Tensor:
    return torch.ones(*indices.shape, 64, device=indices.device)


@contextmanager
def small_radio() -> Iterator[None]:
    """RADIO's sizes are named in vLLM's code; the text model says what dtype it has."""
    from vllm.model_executor.models import nano_nemotron_vl

    config = nano_nemotron_vl.RadioConfig

    def tiny(**kwargs: Any) -> Any:
        radio = config(**kwargs)
        radio.hidden_size, radio.intermediate_size = 64, 96
        radio.num_attention_heads, radio.num_hidden_layers = 2, 2
        return radio

    with (
        patch.object(nano_nemotron_vl, "RadioConfig", tiny),
        stub_with(config=SimpleNamespace(dtype=torch.bfloat16)),
    ):
        yield


def nemotron(architecture: str) -> Any:
    base = config_class("PretrainedConfig")
    text = config_class("LlamaConfig")(**TEXT)
    text.dtype = torch.bfloat16
    config = base(
        architectures=[architecture],
        force_image_size=SIZE,
        patch_size=4,
        template="",
        downsample_ratio=0.5,
        ps_version="v2",
        image_tag_type="",
        vit_hidden_size=64,
        projector_hidden_size=64,
        img_context_token_id=5,
        video_context_token_id=6,
        video_pruning_rate=None,
    )
    config.norm_mean = config.norm_std = (0.5, 0.5, 0.5)
    config.text_config = text
    config.vision_config = base(
        preferred_resolution=[SIZE, SIZE],
        patch_size=4,
        video_temporal_patch_size=2,
        args={
            "model": "vit_small_patch16_224",
            "cpe_max_size": 2 * SIZE,
            "register_multiple": 4,
            "teachers": [],
        },
    )
    config.sound_config = base(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        num_mel_bins=BINS,
        subsampling_conv_channels=8,
        subsampling_factor=8,
        subsampling_conv_kernel_size=3,
        subsampling_conv_stride=2,
        conv_kernel_size=5,
        projection_hidden_size=96,
        projection_bias=True,
        sampling_rate=16000,
    )
    return config


def nemotron_cases(config: Any) -> dict[str, Any]:
    mask = torch.ones(2, 96, dtype=torch.long)
    mask[1, 41:] = 0
    return {
        "2 image": {
            "pixel_values_flat": numbers(3, 3, 3, SIZE, SIZE, dtype=torch.bfloat16),
            "image_num_patches": on_host([2, 1]),
        },
        "2 audio": {
            "input_audio_features": numbers(2, 2, 96, BINS, dtype=torch.bfloat16),
            "feature_attention_mask": mask,
            "audio_num_clips": on_host([1, 1]),
        },
    }


def moondream(architecture: str) -> Any:
    from vllm.transformers_utils.configs.moondream3 import Moondream3Config, Moondream3VisionConfig

    vision = Moondream3VisionConfig(
        enc_dim=64,
        enc_patch_size=4,
        enc_n_layers=2,
        enc_ff_dim=96,
        enc_n_heads=2,
        proj_inner_dim=96,
        crop_size=8,
        overlap_margin=0,
    )
    config = Moondream3Config(architectures=[architecture])
    config.vision_config = vision
    config.text_config.dim = TEXT["hidden_size"]
    return config


def mimo_v2(architecture: str) -> Any:
    config = config_class("Qwen2Config")(**TEXT)
    config.vision_config = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_heads": 2,
        "num_key_value_heads": 2,
        "qk_channels": 32,
        "kv_channels": 32,
        "out_hidden_size": 64,
        "patch_size": 4,
        "fullatt_block_indexes": [0, 1],
        "vit_window_attn_types": [-1, 1],
        "use_sink": False,
    }
    return config


RECIPES = [
    Recipe(
        models=("NemotronH_Nano_VL_V2",),
        config=nemotron,
        cases=nemotron_cases,
        patches=small_radio,
    ),
    Recipe(
        models=("Moondream3ForCausalLM",),
        config=moondream,
        patches=partial(stub_with, embed_input_ids=embeddings),
        cases=lambda config: {
            "1 image": {"pixel_values": numbers(1, 1, 1, 3, 8, 8), "tilings": on_host([[1, 1]])},
            "2 image": {
                "pixel_values": [numbers(1, 3, 3, 8, 8), numbers(2, 1, 3, 8, 8)],
                "tilings": on_host([[1, 2], [1, 1]]),
            },
        },
    ),
    Recipe(
        models=("MiMoV2OmniForCausalLM",),
        config=mimo_v2,
        cases=lambda config: grid_cases(3 * 2 * 4 * 4),
    ),
]
