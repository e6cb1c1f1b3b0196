"""Towers that were written after Qwen-VL's: flat patches, a grid for each item, rotary tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from transformers import PretrainedConfig, Qwen3Config

from tower_anchors.recipe import Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import ROPE, TEXT, config_class, grid_cases

PATCH = 4
SQUARE = 3 * PATCH * PATCH
"""Numbers in a patch of one frame."""


def with_vision(vision: Mapping[str, Any], **more: Any) -> Any:
    """The configuration of a model whose class comes with its checkpoint."""
    config = Qwen3Config(**TEXT | {"rope_parameters": ROPE})
    config.vision_config = PretrainedConfig(**vision)
    config.text_config = Qwen3Config(**TEXT)
    for name, value in more.items():
        setattr(config, name, value)
    return config


def ernie(architecture: str) -> Any:
    return with_vision(
        {
            "depth": 3,
            "embed_dim": 64,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": 2,
        },
        pixel_hidden_size=64,
        spatial_conv_size=2,
        temporal_conv_size=2,
        use_temporal_conv=True,
        rms_norm_eps=1e-6,
        im_patch_id=7,
    )


def pangu(architecture: str) -> Any:
    return with_vision(
        {
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_heads": 2,
            "in_channels": 3,
            "out_hidden_size": 64,
            "patch_size": PATCH,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "window_size": 4 * PATCH,
            "fullatt_block_indexes": [1],
            "hidden_act": "gelu",
        }
    )


def dots(architecture: str) -> Any:
    vision = {
        "embed_dim": 64,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "patch_size": PATCH,
    }
    return config_class("DotsOCRConfig")(vision_config=vision, **TEXT)


def kanana(architecture: str) -> Any:
    config = with_vision({})
    config.vision_config = config_class("Qwen2VLConfig")(
        vision_config={
            "depth": 3,
            "embed_dim": 64,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": PATCH,
        }
    ).vision_config
    # Without its own blocks, which are timm's, it merges nothing.
    config.projector_config = PretrainedConfig(
        depth=0,
        mlp_depth=2,
        merge_size=1,
        pos_emb=False,
        pos_emb_size=36,
        encoder_hidden_size=64,
        hidden_size=64,
        output_hidden_size=64,
        feature_layer_index=-1,
    )
    return config


def square_cases(
    modalities: tuple[str, ...] = ("image",), flat: bool = False
) -> dict[str, dict[str, Any]]:
    """Patches of one frame, each (3, 4, 4), or flat."""
    cases = grid_cases(SQUARE, modalities)
    shape = (-1, SQUARE) if flat else (-1, 3, PATCH, PATCH)
    for case in cases.values():
        for name in case:
            if name.startswith("pixel_values"):
                case[name] = case[name].reshape(shape)
    return cases


def kanana_cases(config: Any) -> dict[str, dict[str, Any]]:
    cases = grid_cases(2 * SQUARE, ("image",))
    for case in cases.values():
        case["vision_grid_thw"] = case.pop("image_grid_thw")
    return cases


def glm5next(architecture: str) -> Any:
    return config_class("Glm5NextConfig")(
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "projection_intermediate_size": 64,
            "image_size": 6 * PATCH,
            "patch_size": PATCH,
            "temporal_patch_size": 2,
            "swiglu_limit": 7.0,
        },
        text_config=TEXT | {"rope_parameters": ROPE},
    )


@contextmanager
def native_norms() -> Iterator[None]:
    """GLM-5-Next's kernel for two norms is Triton's; for good, as it is not called yet here."""
    from vllm.models.glm5next.common import multimodal

    def norms(q: Any, k: Any, q_weight: Any, k_weight: Any, eps: float) -> Any:
        norm = torch.nn.functional.rms_norm
        pairs = ((q, q_weight), (k, k_weight))
        return tuple(norm(x, weight.shape, weight, eps) for x, weight in pairs)

    multimodal.fused_q_kv_rmsnorm = norms
    yield


@contextmanager
def no_language_model() -> Iterator[None]:
    with patch("vllm.model_executor.models.dots_ocr.init_vllm_registered_model", Stub):
        yield


@contextmanager
def fixed_normalisation() -> Iterator[None]:
    """OpenPangu-VL reads how to normalise from its processor, and wants flash attention."""
    from vllm.model_executor.models import openpangu_vl
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    def parameters(self: Any, vision_config: Any) -> None:
        self.channel, self.patch_size = vision_config.in_channels, vision_config.patch_size
        self.do_rescale, self.rescale_factor, self.do_normalize = True, 0.5, True
        self.image_mean, self.image_std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)

    model = openpangu_vl.OpenPanguVLForConditionalGeneration
    flash = AttentionBackendEnum.FLASH_ATTN
    with (
        patch.object(model, "_parse_preprocess_params", parameters),
        patch.object(openpangu_vl, "get_vit_attn_backend", lambda **_: flash),
    ):
        yield


RECIPES = [
    Recipe(
        models=("Glm5NextForConditionalGeneration",),
        towers=("Glm5NextVisionTransformer",),
        config=glm5next,
        cases=lambda config: grid_cases(2 * SQUARE),
        patches=native_norms,
    ),
    Recipe(
        models=("Ernie4_5_VLMoeForConditionalGeneration",),
        towers=("Ernie4_5_VisionTransformer",),
        config=ernie,
        cases=lambda config: square_cases(flat=True),
    ),
    Recipe(
        models=("OpenPanguVLForConditionalGeneration",),
        config=pangu,
        # Images it normalises to bfloat16; frames it takes as they are.
        cases=lambda config: grid_cases(2 * SQUARE, ("video",)),
        patches=fixed_normalisation,
    ),
    Recipe(
        models=("DotsOCRForCausalLM",),
        config=dots,
        cases=lambda config: square_cases(flat=True),
        patches=no_language_model,
    ),
    Recipe(
        models=("KananaVForConditionalGeneration",),
        config=kanana,
        cases=kanana_cases,
    ),
]
