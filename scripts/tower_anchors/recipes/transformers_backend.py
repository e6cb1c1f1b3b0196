"""The Transformers backend: a tower as transformers writes it, whose weights are made last.

Which modalities a model serves is asked of its processor, of which nothing is there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from vllm.multimodal import MULTIMODAL_REGISTRY

from tower_anchors.recipe import Recipe
from tower_anchors.recipes.clip_siglip import SIZE, gemma3, llava
from tower_anchors.tiny import TEXT, config_class, image_cases, on_host

PATCHES = (SIZE // 8) ** 2
OPTIONS = {"mm_encoder_only": False}
"""It looks through the layers of the language model."""


def llava_with_experts(architecture: str) -> Any:
    config = llava(architecture)
    config.text_config = config_class("MixtralConfig")(
        **TEXT, num_local_experts=4, num_experts_per_tok=2
    )
    return config


def cases(config: Any) -> dict[str, Any]:
    """Images, and how many tokens of each."""
    tokens = getattr(config, "mm_tokens_per_image", PATCHES)
    made = image_cases(SIZE)
    for case in made.values():
        case["num_image_patches"] = on_host([tokens] * len(case["pixel_values"]))
    return made


def images_only() -> AbstractContextManager[Any]:
    info = SimpleNamespace(supported_mm_limits={"image": None})
    return patch.object(MULTIMODAL_REGISTRY, "get_processing_info", lambda *_, **__: info)


RECIPES = [
    Recipe(
        models=(
            "TransformersMultiModalForCausalLM",
            "TransformersMultiModalEmbeddingModel",
        ),
        config=llava,
        cases=cases,
        patches=images_only,
        options=OPTIONS,
    ),
    Recipe(
        models=("TransformersMultiModalMoEForCausalLM",),
        config=llava_with_experts,
        cases=cases,
        patches=images_only,
        options=OPTIONS,
    ),
    Recipe(
        models=("TransformersMultiModalForSequenceClassification",),
        config=gemma3,
        cases=cases,
        patches=images_only,
        options=OPTIONS,
    ),
]
