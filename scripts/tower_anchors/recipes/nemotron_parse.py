"""Nemotron Parse and Parse 3.5: RADIO with a neck, then a decoder."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import config_class, on_host


@contextmanager
def small_radio() -> Iterator[None]:
    """RADIO is as wide as the neck's code says, but of two layers."""
    config_module = importlib.import_module("vllm.transformers_utils.configs.radio")
    with patch.dict(
        config_module.VIT_TIMM_DIM_BY_NAME, {"vit_huge_patch16_224": (1280, 2, 16, 96)}
    ):
        yield


def parse(architecture: str) -> Any:
    base = config_class("PretrainedConfig")
    config = base(architectures=[architecture], image_size=[64, 64], navit_packing=True)
    config.tie_word_embeddings = False
    config.encoder = base(
        patch_size=16,
        args={
            "model": "vit_huge_patch16_224",
            "cpe_max_size": 128,
            "register_multiple": 16,
            "teachers": [{"name": name} for name in "abc"],
            "cls_token_per_teacher": True,
        },
    )
    config.decoder = config_class("MBartConfig")(
        d_model=64, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=64, vocab_size=128
    )
    config.decoder.tie_word_embeddings = False
    config.decoder.causal_vision_prefix, config.decoder.add_cross_attention = True, False
    return config


RECIPES = [
    Recipe(
        models=("NemotronParseForConditionalGeneration",),
        config=parse,
        cases=lambda config: {"2 image": {"pixel_values": numbers(1, 2, 3, 64, 64)}},
        patches=small_radio,
    ),
    Recipe(
        models=("RadioMBartPrefixForCausalLM",),
        config=parse,
        cases=lambda config: {
            "2 image": {
                "pixel_values": numbers(1, 8 + 8, 3 * 16 * 16),
                "image_sizes": on_host([[32, 64], [32, 64]]),
                "content_sizes": on_host([[20, 64], [32, 50]]),
            }
        },
        patches=small_radio,
    ),
]
