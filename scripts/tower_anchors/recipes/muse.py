"""Muse Glimmer and Muse Spark, and Inkling: images, clips and sound in their own patches."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers
from torch import nn

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, grid_cases, on_host

PATCH = 4


def muse_glimmer(architecture: str) -> Any:
    return config_class("MuseGlimmerConfig")(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "patch_size": PATCH,
            "patch_temporal": 2,
            "merge_size": 2,
            "pos_emb_height": 4,
            "pos_emb_width": 4,
            "layer_types": ["full_attention", "window_attention"],
        },
        text_config=TEXT,
        out_hidden_size=256,
        projector_hidden_size=64,
    )


def muse_spark(architecture: str) -> Any:
    from vllm.transformers_utils.configs.muse_spark import MuseSparkConfig

    return MuseSparkConfig(
        vision_config={
            "hidden_act": "gelu",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "layer_types": ["full_attention", "window_attention"],
            "layer_norm_eps": 1e-5,
            "merge_size": 2,
            "patch_size": PATCH,
            "patch_temporal": 2,
            "pos_emb_height": 4,
            "pos_emb_width": 4,
            "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4},
        },
        audio_config={
            "hidden_act": "gelu",
            "out_hidden_size": 64,
            "patch_sizes": [4, 3],
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "num_hidden_layers": 2,
            "conv_kernel_size": 3,
            "mlp_ratio": 4.0,
            "rms_norm_eps": 1e-6,
            "rms_post_norm_eps": 1e-6,
            "output_multiplier": 1.0,
            "final_logit_softcapping": None,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "sliding_window": 32,
        },
        text_config=TEXT
        | {
            "hidden_act": "silu",
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "num_shared_experts": 0,
            "tie_word_embeddings": False,
            "rms_norm_eps": 1e-6,
            "rms_post_norm_eps": 1e-6,
            "output_multiplier": 1.0,
            "final_logit_softcapping": None,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "sliding_window": 32,
            "layer_types": ["full_attention"] * 2,
            "mlp_layer_types": ["dense"] * 2,
            "layer_rope_theta": [1e4] * 2,
        },
        projector_hidden_size=96,
        out_hidden_size=256,
    )


def inkling(architecture: str) -> Any:
    from vllm.models.inkling.configs import InklingMMConfig

    return InklingMMConfig(
        vision_config={
            "vision_encoder_type": "hmlp",
            "decoder_dmodel": 64,
            "patch_size": 8,
            "temporal_patch_size": 2,
            "n_channels": 3,
            "n_layers": 3,
            "use_vision_norm": True,
        },
        audio_config={
            "decoder_dmodel": 64,
            "n_mel_bins": 8,
            "mel_vocab_size": 5,
            "dmel_min_value": 0.0,
            "dmel_max_value": 1.0,
            "use_audio_norm": True,
            "audio_mode": "dmel",
        },
        text_config=TEXT | {"sliding_window_size": 64},
    )


@contextmanager
def no_layers() -> Iterator[None]:
    """The decoder of these is not built in a mark for language models."""
    from vllm.model_executor.models import llama

    def none(*_: Any, **__: Any) -> Any:
        return 0, 0, nn.ModuleList()

    modules = [llama]
    for name in ("inkling.nvidia.model",):
        with suppress(ImportError):
            modules.append(importlib.import_module(f"vllm.models.{name}"))
    with ExitStack() as stack:
        with suppress(ImportError):
            from vllm.models.muse_spark.common.layers import MuseSpark1xRMSNorm as Norm

            plain = Norm.__init__

            def init(self: Any, *args: Any, **kwargs: Any) -> None:
                plain(self, *args, **kwargs)
                self.supports_fused_kernel = lambda _: False  # that one wants Triton

            stack.enter_context(patch.object(Norm, "__init__", init))
        for module in modules:
            if hasattr(module, "make_layers"):
                stack.enter_context(patch.object(module, "make_layers", none))
        yield


RECIPES = [
    Recipe(
        models=("MuseGlimmerForConditionalGeneration", "MuseGlimmerForCausalLM"),
        config=muse_glimmer,
        cases=lambda config: grid_cases(3 * 2 * PATCH**2),
    ),
    Recipe(
        models=("MuseSparkForConditionalGeneration",),
        config=muse_spark,
        patches=no_layers,
        cases=lambda config: {
            "2 image": {"images": [numbers(1, 3, 24, 16), numbers(2, 3, 16, 8)]},
            "2 audio": {"input_features": [numbers(1, 50), numbers(2, 7)]},
        },
    ),
    Recipe(
        models=("InklingForConditionalGeneration",),
        config=inkling,
        patches=no_layers,
        cases=lambda config: {
            "2 image": {"pixel_values": numbers(1, 5, 2, 8, 8, 3), "num_patches": on_host([3, 2])},
            "2 audio": {
                "input_audio_features": torch.arange(7 * 8).view(7, 8) % 5,
                "num_audio_tokens": on_host([4, 3]),
            },
        },
    ),
]
