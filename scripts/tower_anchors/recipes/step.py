"""Step3-VL, Step-VL and Step 3.7: a view of each image and patches of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, on_host

SIZE = 32


def config_of(architecture: str, vision: Any, **more: Any) -> Any:
    text = config_class("LlamaConfig")(**TEXT)
    text.architectures = ["LlamaForCausalLM"]
    config = config_class("PretrainedConfig")(
        architectures=[architecture],
        image_token_id=5,
        hidden_size=64,
        projector_bias=False,
        understand_projector_stride=2,
        **more,
    )
    config.vision_config, config.text_config = vision, text
    return config


def step3_vl(architecture: str) -> Any:
    vision = config_class("Step3VisionEncoderConfig")(
        hidden_size=64,
        intermediate_size=96,
        output_hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIZE,
        patch_size=4,
    )
    return config_of(architecture, vision)


def step_vl(architecture: str) -> Any:
    vision = config_class("PretrainedConfig")(
        hidden_act="quick_gelu",
        image_size=SIZE,
        patch_size=4,
        output_dim=None,
        width=64,
        layers=2,
        heads=2,
        mlp_ratio=2.0,
        ls_init_value=0.1,
        use_abs_posemb=True,
        use_cls_token=True,
        use_rope2d=True,
        use_ln_pre=True,
        use_ln_post=True,
    )
    return config_of(architecture, vision)


def cases(config: Any) -> dict[str, Any]:
    return {
        "1 image": {
            "pixel_values": numbers(1, 1, 3, SIZE, SIZE),
            "patch_pixel_values": torch.zeros(0, 3, SIZE, SIZE),
            "num_patches": on_host([0]),
        },
        "2 image": {
            "pixel_values": numbers(2, 2, 3, SIZE, SIZE),
            "patch_pixel_values": numbers(3, 3, 3, SIZE, SIZE),
            "num_patches": on_host([2, 1]),
        },
    }


@contextmanager
def no_language_model() -> Iterator[None]:
    """They build it into a local name, where no stub is put by itself."""
    from vllm.model_executor.models import step3_vl, step3p7, step_vl

    with ExitStack() as stack:
        for module in (step3_vl, step_vl, step3p7):
            stack.enter_context(patch.object(module, "init_vllm_registered_model", Stub))
            stack.enter_context(patch.object(module, "supports_pp", lambda _: True))
        yield


RECIPES = [
    Recipe(
        models=("Step3VLForConditionalGeneration",),
        config=step3_vl,
        cases=cases,
        patches=no_language_model,
    ),
    Recipe(
        models=("StepVLForConditionalGeneration", "Step3p7ForConditionalGeneration"),
        config=step_vl,
        cases=cases,
        patches=no_language_model,
    ),
]
