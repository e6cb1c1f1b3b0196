"""Molmo, Molmo 2, Phi-3-Vision and GLM-4V: towers that take the device of a weight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.stubs import Stub
from tower_anchors.tiny import TEXT, config_class, image_cases, on_host

SIZE = 16


def config(**values: Any) -> Any:
    return config_class("PretrainedConfig")(**(TEXT | values))


def glm4v(architecture: str) -> Any:
    return config_class("ChatGLMConfig")(
        original_rope=True,
        tie_word_embeddings=False,
        hidden_size=64,
        ffn_hidden_size=128,
        num_layers=2,
        num_attention_heads=2,
        kv_channels=32,
        padded_vocab_size=128,
        seq_length=512,
        vision_config={
            "in_channels": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_heads": 2,
            "image_size": SIZE,
            "patch_size": 4,
            "num_positions": 17,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-6,
            "dropout_prob": 0.0,
            "scaling_factor": 8.0,
        },
    )


CLIP = {
    "hidden_size": 1024,  # a constant, as the number of patches
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
    "hidden_act": "gelu",
}


def phi3v(architecture: str) -> Any:
    return config(
        img_processor={"image_dim_out": 1024, "num_img_tokens": 144, "layer_idx": -2},
        embd_layer={
            "use_hd_transform": True,
            "with_learnable_separator": True,
            "hd_transform_order": "sub_glb",
        },
        model_type="phi3_v",
    )


@contextmanager
def small_clip() -> Iterator[None]:
    import vllm.model_executor.models.phi3v as module

    small = config_class("CLIPVisionConfig")(**CLIP)
    with patch.object(module, "CLIP_VIT_LARGE_PATCH14_336_CONFIG", small):
        yield


def phi3v_cases(config: Any) -> dict[str, Any]:
    return {
        f"{n} image": {
            "pixel_values": numbers(n, n, 2, 3, 336, 336),
            "image_sizes": torch.tensor([[336, 336]] * n, device="cpu"),
        }
        for n in (1, 2)
    }


def molmo(architecture: str) -> Any:
    return config(embedding_size=128, weight_tying=False, model_type="molmo")


@contextmanager
def small_molmo() -> Iterator[None]:
    """Its tower's size is that of a class's defaults; nine blocks, for it takes two of them."""
    import vllm.model_executor.models.molmo as module

    small = partial(
        module.VisionBackboneConfig,
        image_default_input_size=(SIZE, SIZE),
        image_patch_size=4,
        image_emb_dim=64,
        image_num_heads=2,
        image_num_key_value_heads=2,
        image_num_layers=9,
        image_mlp_dim=64,
        image_num_pos=17,
    )
    with patch.object(module, "VisionBackboneConfig", small):
        yield


def molmo_cases(config: Any) -> dict[str, Any]:
    """Crops of 4 x 4 patches, whose 2 x 2 features go to places of the text; some are padding."""
    cases = {}
    for crops in ([1], [2, 1, 3]):
        count = sum(crops)
        places = torch.arange(4 * count, device="cpu").view(count, 4).flip(0)
        places[-1, 2:] = -100
        cases[f"{len(crops)} image"] = {
            "images": numbers(count, count, 16, 48),
            "image_masks": numbers(count + 1, count, 16).clamp(0, 1),
            "image_input_idx": places,
            "num_crops": on_host(crops),
            "img_patch_id": 7,
        }
    return cases


def molmo2(architecture: str) -> Any:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}
    vit = config_class("PretrainedConfig")(
        **heads,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        hidden_act="gelu",
        layer_norm_eps=1e-6,
        image_default_input_size=(SIZE, SIZE),
        image_patch_size=4,
        image_num_pos=16,
    )
    adapter = config_class("PretrainedConfig")(
        **heads,
        vit_layers=(-1, -2),
        pooling_attention_mask=True,
        hidden_size=64,
        hidden_act="silu",
        intermediate_size=128,
        text_hidden_size=64,
    )
    return config_class("PretrainedConfig")(
        vit_config=vit,
        adapter_config=adapter,
        text_config=config(),
        image_patch_id=7,
        model_type="molmo2",
    )


def molmo2_cases(config: Any) -> dict[str, Any]:
    """Of each image a crop of 4 x 4 patches, pooled by fours; some pools are not full."""
    cases = {}
    for kind, (pixels, names) in {
        "image": ("pixel_values", "image"),
        "video": ("pixel_values_videos", "video"),
    }.items():
        for count in (1, 2):
            pools = torch.arange(16, device="cpu").view(4, 4).repeat(count, 1)
            pools[-1, 2:] = -1
            cases[f"{count} {kind}"] = {
                pixels: numbers(count, count, 16, 48),
                f"{names}_token_pooling": pools,
                f"{names}_num_crops": on_host([1] * count),
                f"{names}_num_pooled_patches": on_host([4] * count),
                f"{names}_num_patches": on_host([16] * count),
                f"{names}_tokens": torch.full((4 * count,), 7, device="cpu"),
                f"num_{names}_tokens": on_host([4] * count),
            }
    return cases


def word_embeddings() -> AbstractContextManager[None]:
    """It puts features between the words of its language model; also when it runs, so for good."""

    def embed(_: Any, words: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*words.shape, TEXT["hidden_size"], device=words.device)

    Stub.embed_input_ids = embed
    return nullcontext()


RECIPES = [
    Recipe(models=("MolmoForCausalLM",), config=molmo, cases=molmo_cases, patches=small_molmo),
    Recipe(
        models=("Molmo2ForConditionalGeneration",),
        config=molmo2,
        cases=molmo2_cases,
        patches=word_embeddings,
    ),
    Recipe(models=("GLM4VForCausalLM",), config=glm4v, cases=lambda _: image_cases(SIZE)),
    Recipe(models=("Phi3VForCausalLM",), config=phi3v, cases=phi3v_cases, patches=small_clip),
]
