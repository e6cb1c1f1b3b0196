"""LLaVA-NeXT and its video form, LLaVA-OneVision, Granite 4 Vision, Bagel, BLIP-2 and Llama 4."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.towers.family import numbers

from tower_anchors import stubs
from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, image_cases, on_host

SIZE = 32
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 8,
}
CLIP = VISION | {"model_type": "clip_vision_model"}
SIGLIP = VISION | {"model_type": "siglip_vision_model", "vision_use_head": False}
LLAMA = TEXT | {"model_type": "llama"}
PINPOINTS = [[SIZE, 2 * SIZE], [2 * SIZE, SIZE], [2 * SIZE, 2 * SIZE]]


def llava_next(architecture: str) -> Any:
    return config_class("LlavaNextConfig")(
        vision_config=CLIP,
        text_config=LLAMA,
        vision_feature_layer=-2,
        image_grid_pinpoints=PINPOINTS,
    )


def llava_next_video(architecture: str) -> Any:
    return config_class("LlavaNextVideoConfig")(
        vision_config=CLIP | {"patch_size": 4},  # its pooling divides by it twice
        text_config=LLAMA,
        vision_feature_layer=-2,
        image_grid_pinpoints=PINPOINTS,
        spatial_pool_mode="average",
        spatial_pool_stride=2,
    )


def llava_onevision(architecture: str) -> Any:
    return config_class("LlavaOnevisionConfig")(
        vision_config=SIGLIP,
        text_config=TEXT | {"model_type": "qwen2"},
        image_grid_pinpoints=PINPOINTS,
        vision_feature_layer=-1,
    )


def tiled_cases(config: Any) -> dict[str, Any]:
    """Images in two or four tiles, each with the whole image before them."""
    sizes = {"1 image": [(3, [SIZE, 2 * SIZE])]}
    sizes["2 image"] = [(5, [2 * SIZE, 60]), (3, [50, SIZE])]
    return {
        case: {
            "pixel_values": [numbers(n, n, 3, SIZE, SIZE) for n, _ in images],
            "image_sizes": on_host([size for _, size in images]),
        }
        for case, images in sizes.items()
    }


def video_cases(config: Any) -> dict[str, Any]:
    """Videos of one length, in one tensor, and of several."""
    return {
        "2 video": {"pixel_values_videos": numbers(1, 2, 3, 3, SIZE, SIZE)},
        "2 videos": {"pixel_values_videos": [numbers(n, n, 3, SIZE, SIZE) for n in (4, 2)]},
    }


def blip2(architecture: str) -> Any:
    return config_class("Blip2Config")(
        vision_config=VISION,
        qformer_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "encoder_hidden_size": 64,
        },
        text_config=TEXT | {"model_type": "opt", "word_embed_proj_dim": 64},
        num_query_tokens=5,
    )


def llama4(architecture: str) -> Any:
    return config_class("Llama4Config")(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 256,  # also 2 x 2 patches for the adapter
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": SIZE,
            "patch_size": 8,
            "projector_input_dim": 128,
            "projector_output_dim": 128,
            "vision_output_dim": 128,
        },
        text_config=TEXT | {"num_local_experts": 2},
    )


def llama4_cases(config: Any) -> dict[str, Any]:
    return {
        f"{len(tiles)} image": {
            "pixel_values": numbers(sum(tiles), sum(tiles), 3, SIZE, SIZE),
            "patches_per_image": on_host(tiles),
            "aspect_ratios": on_host([[1, 1]] * len(tiles)),
        }
        for tiles in ([1], [5, 1, 3])
    }


@contextmanager
def no_experts() -> Iterator[None]:
    """It counts the layers of its language model, which is not built."""
    with patch.object(stubs._Nothing, "__len__", lambda _: 0, create=True):
        yield


def granite4(architecture: str) -> Any:
    """Features of several depths, each cut to a half by a Q-Former of windows of four."""
    plain = config_class("PretrainedConfig")
    return plain(
        vision_config=config_class("SiglipVisionConfig")(**SIGLIP),
        text_config=config_class("LlamaConfig")(**TEXT),
        downsample_rate="2/4",
        deepstack_layer_map=[[-2, 0], [-3, 1]],
        spatial_vision_layer=-1,
        spatial_target_layers=[0, 1, 0, 1],
        vision_feature_select_strategy="full",
        image_grid_pinpoints=PINPOINTS,
        projector_dropout=0.0,
        use_image_newline_parameter=True,
        model_type="granite4_vision",
    )


def bagel(architecture: str) -> Any:
    return config_class("BagelConfig")(
        llm_config=TEXT,
        vit_config=SIGLIP,
        vit_max_num_patch_per_side=8,
    )


def granite4_cases(config: Any) -> dict[str, Any]:
    cases = tiled_cases(config)
    image = cases["1 image"]["pixel_values"][0]
    return {"1 image": cases["1 image"] | {"pixel_values": image[None]}}


RECIPES = [
    Recipe(
        models=("Granite4VisionForConditionalGeneration",),
        config=granite4,
        cases=granite4_cases,
    ),
    Recipe(
        models=("BagelForConditionalGeneration",),
        config=bagel,
        cases=lambda config: image_cases(SIZE),
    ),
    Recipe(models=("LlavaNextForConditionalGeneration",), config=llava_next, cases=tiled_cases),
    Recipe(
        models=("LlavaNextVideoForConditionalGeneration",),
        config=llava_next_video,
        cases=video_cases,
    ),
    Recipe(
        models=("LlavaOnevisionForConditionalGeneration",),
        config=llava_onevision,
        cases=lambda config: tiled_cases(config) | video_cases(config),
    ),
    Recipe(
        models=("Blip2ForConditionalGeneration",),
        config=blip2,
        cases=lambda config: image_cases(SIZE),
    ),
    Recipe(
        models=("Llama4ForConditionalGeneration",),
        config=llama4,
        cases=llama4_cases,
        patches=no_experts,
    ),
]
