"""InternVL and those that copied it, Intern-S1: tiles of images, with frames as tiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, image_cases, on_host

SIZE = 32
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_channels": 3,
    "image_size": SIZE,
    "patch_size": 8,
    "hidden_act": "gelu",
    "norm_type": "rms_norm",
    "layer_norm_eps": 1e-6,
    "qkv_bias": False,
    "qk_normalization": True,
    "initializer_factor": 0.1,
}
IMAGE_TOKEN = 7


def internvl(architecture: str) -> Any:
    plain = config_class("PretrainedConfig")
    return plain(
        vision_config=plain(**VISION),
        text_config=config_class("Qwen2Config")(**TEXT),
        select_layer=-1,
        downsample_ratio=0.5,
        ps_version="v2",
        force_image_size=None,
        use_backbone_lora=0,
        hidden_size=64,
        model_type="internvl_chat",
    )


def eagle(architecture: str) -> Any:
    made = internvl(architecture)
    names = ("norm_type", "qkv_bias", "qk_normalization", "initializer_factor")
    sizes = {name: value for name, value in VISION.items() if name not in names}
    made.vision_config = config_class("SiglipVisionConfig")(**sizes)
    return made


def nemotron(architecture: str) -> Any:
    made = eagle(architecture)
    made.text_config = config_class("LlamaConfig")(**TEXT)
    return made


def tiles(images: str = "pixel_values_flat", count: str = "image_num_patches") -> Any:
    def cases(config: Any) -> dict[str, Any]:
        return {
            f"{len(n)} image": {
                images: numbers(sum(n), sum(n), 3, SIZE, SIZE),
                count: on_host(n),
                "image_token_id": IMAGE_TOKEN,
            }
            for n in ([1], [3, 1, 2])
        }

    return cases


def tiles_and_frames(config: Any) -> dict[str, Any]:
    frames = {
        "2 video": {
            "pixel_values_flat_video": numbers(9, 5, 3, SIZE, SIZE),
            "video_num_patches": on_host([3, 2]),
            "video_token_id": IMAGE_TOKEN,
        }
    }
    images: dict[str, Any] = tiles()(config)
    return images | frames


def interns1(architecture: str) -> Any:
    return config_class("InternVLConfig")(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": [SIZE, SIZE],
            "patch_size": [8, 8],
            "norm_type": "layer_norm",
        },
        text_config=TEXT | {"model_type": "qwen2"},
        downsample_ratio=0.5,
    )


def interns1_cases(config: Any) -> dict[str, Any]:
    cases: dict[str, Any] = image_cases(SIZE)
    for count, case in ((1, "1 image"), (3, "3 image")):
        cases[case] |= {"image_num_patches": on_host([1] * count), "image_token_id": IMAGE_TOKEN}
    return cases


@contextmanager
def no_language_model() -> Iterator[None]:
    """It keeps its language model under a name of its own before it is the model's."""
    import vllm.model_executor.models.skyworkr1v as module

    with (
        patch.object(module, "init_vllm_registered_model", Stub),
        patch.object(module, "supports_pp", lambda _: True),
    ):
        yield


RECIPES = [
    Recipe(
        models=("InternVLChatModel",),
        towers=("InternVisionModel",),
        config=internvl,
        cases=tiles_and_frames,
        options={"skip_tokenizer_init": False},  # it asks one whether it knows videos
    ),
    Recipe(
        models=(
            "H2OVLChatModel",
            "NVLM_D_Model",
            "QianfanOCRForConditionalGeneration",
        ),
        config=internvl,
        cases=tiles(),
    ),
    Recipe(
        models=("SkyworkR1VChatModel",),
        config=internvl,
        cases=tiles(),
        patches=no_language_model,
    ),
    Recipe(
        models=("LlamaNemotronVLForEmbedding", "LlamaNemotronVLForSequenceClassification"),
        config=nemotron,
        cases=tiles(),
    ),
    Recipe(
        models=("Eagle2_5_VLForConditionalGeneration",),
        config=eagle,
        cases=tiles(),
    ),
    Recipe(
        models=("InternS1ForConditionalGeneration", "InternVLForConditionalGeneration"),
        config=interns1,
        cases=interns1_cases,
    ),
]
