"""Models whose vision tower is timm's, or of transformers by way of timm."""

from __future__ import annotations

import importlib.util
from typing import Any

from tower_anchors.recipe import NotHere, Recipe


def config(architecture: str) -> Any:
    """Say why there is none.

    Raises:
        NotHere: always; what for depends on the environment.
    """
    if importlib.util.find_spec("timm") is None:
        raise NotHere("its vision tower is timm's, which is not installed")
    raise NotHere("its vision tower is timm's, for which no recipe is written")


RECIPES = [
    Recipe(
        models=(
            "DeepseekVLV2ForCausalLM",
            "Gemma3nForConditionalGeneration",
            "OpenVLAForActionPrediction",
        ),
        config=config,
        cases=lambda _: {},
    ),
]
