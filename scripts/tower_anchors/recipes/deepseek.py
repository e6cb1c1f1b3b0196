"""DeepSeek-OCR, its second form and Unlimited-OCR: SAM, then CLIP or a Qwen2 decoder.

The sizes of their encoders are in vLLM's code: `patches` makes them small.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, on_host

VOCAB = {"<image>": 5}
SIZE, WIDTH = 768, 64
"""Pixels of an image, of which SAM makes 12 by 12 features; width of a feature."""


@contextmanager
def small() -> Iterator[None]:
    """SAM and its follower in two layers, as wide as `WIDTH`."""
    from vllm.model_executor.models import deepencoder, deepencoder2, deepseek_ocr, deepseek_ocr2

    def sam(**sizes: Any) -> Any:
        tiny: dict[str, Any] = {
            "depth": 2,
            "embed_dim": 64,
            "num_heads": 2,
            "img_size": SIZE,
            "mlp_ratio": 2,
        }
        tiny |= {"last_conv_output": WIDTH, "global_attn_indexes": (1,)}
        return deepencoder.ImageEncoderViT(**sizes | tiny)

    def clip(**sizes: Any) -> Any:
        tiny = {"hidden_size": WIDTH, "intermediate_size": 96, "num_attention_heads": 2}
        return clip_config(**sizes | tiny | {"num_hidden_layers": 2})

    clip_config = deepseek_ocr.CLIPVisionConfig
    decoder = partial(deepencoder2.build_qwen2_decoder_as_encoder, 2, WIDTH, 2, 2, 96)
    plain = {"use_rel_pos": True, "window_size": 14, "patch_size": 16, "out_chans": 256}
    with ExitStack() as stack:
        for module, name, value in (
            (deepseek_ocr, "cached_tokenizer_from_config", lambda _: SimpleNamespace(vocab=VOCAB)),
            (deepseek_ocr2, "cached_tokenizer_from_config", lambda _: SimpleNamespace(vocab=VOCAB)),
            (deepseek_ocr, "build_sam_vit_b", partial(sam, **plain)),
            (deepseek_ocr, "CLIPVisionConfig", clip),
            (deepseek_ocr2, "ImageEncoderViT", sam),
            (deepseek_ocr2, "build_qwen2_decoder_as_encoder", decoder),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield


def deepseek_ocr(architecture: str) -> Any:
    name = "UnlimitedOCRConfig" if "Unlimited" in architecture else "DeepseekVLV2Config"
    second = architecture == "DeepseekOCR2ForCausalLM"
    if name == "UnlimitedOCRConfig":
        from vllm.transformers_utils.configs.unlimited_ocr import UnlimitedOCRConfig as Config
    else:
        Config = config_class(name)
    return Config(
        tile_tag="2D",
        architectures=[architecture],
        vision_config={"image_size": SIZE, "patch_size": 16, "width": WIDTH, "layers": 2},
        projector_config={
            "projector_type": "linear",
            "input_dim": WIDTH * (1 if second else 2),
            "n_embed": TEXT["hidden_size"],
        },
        language_config=TEXT | {"qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32},
    )


def cases(config: Any) -> dict[str, Any]:
    """One image; one that is cut in crops, and one that is not."""
    return {
        "1 image": {
            "pixel_values": numbers(1, 1, 3, SIZE, SIZE),
            "images_spatial_crop": on_host([[1, 1]]),
            "images_crop": torch.zeros(0, 3, SIZE, SIZE),
        },
        "2 image": {
            "pixel_values": numbers(2, 2, 3, SIZE, SIZE),
            "images_spatial_crop": on_host([[2, 1], [1, 1]]),
            "images_crop": numbers(3, 2, 3, SIZE, SIZE),
        },
    }


RECIPES = [
    Recipe(
        models=("DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM"),
        config=deepseek_ocr,
        cases=cases,
        patches=small,
    ),
    Recipe(
        models=("UnlimitedOCRForCausalLM",),
        config=deepseek_ocr,
        cases=cases,
        patches=small,
        options={"mm_encoder_attn_backend": "TORCH_SDPA"},  # it would have one of CUDA
    ),
]
