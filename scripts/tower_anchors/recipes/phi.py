"""Phi-3-vision, Phi-4-multimodal and Phi-4 with SigLIP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import OnHost, Recipe
from tower_anchors.tiny import TEXT, config_class


@contextmanager
def small() -> Iterator[None]:
    """The sizes of the vision encoder are in vLLM's code."""
    from vllm.model_executor.models import phi4mm

    config = phi4mm.SiglipVisionConfig

    def tiny(**sizes: Any) -> Any:
        sizes |= {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
        sizes |= {"num_hidden_layers": 4}
        return config(**sizes)

    with patch.object(phi4mm, "SiglipVisionConfig", tiny):
        yield


def phi4mm(architecture: str) -> Any:
    audio = {
        "input_size": 80,
        "attention_dim": 64,
        "attention_heads": 2,
        "linear_units": 96,
        "num_blocks": 2,
        "chunk_size": -1,
        "left_chunk": 18,
        "kernel_size": 3,
        "ext_pw_kernel_size": 1,
        "ext_pw_out_channel": 64,
        "depthwise_seperable_out_channel": 64,
        "depthwise_multiplier": 1,
        "dropout_rate": 0.0,
        "causal": True,
        "activation": "swish",
        "conv_activation": "swish",
        "conv_glu_type": "swish",
        "bias_in_glu": True,
        "cnn_layer_norm": True,
        "cnn_out": 64,
        "time_reduction": 8,
        "nemo_conv_settings": {"conv_channels": 64, "subsampling_conv_chunking_factor": 2},
        "encoder_embedding_config": {"input_size": 80},
        "relative_attention_bias_args": {"type": "t5", "t5_bias_max_distance": 50},
    }
    config = config_class("Phi3Config")(**TEXT, pad_token_id=0)
    config.img_processor = {"layer_idx": -2, "type_feature": "patch"}
    config.audio_processor = {"name": "cascades", "config": audio}
    config.embd_layer = {
        "audio_embd_layer": {
            "embedding_cls": "audio",
            "downsample_rate": 1,
            "projection_cls": "mlp",
        }
    }
    return config


def phi4mm_cases(config: Any) -> dict[str, Any]:
    mask = torch.ones(1, 2, 32, 32, dtype=torch.bool)
    mask[:, 1, 24:] = False
    return {
        "1 image": {
            "input_image_embeds": [numbers(1, 2, 3, 448, 448)],
            "image_attention_mask": [mask[0]],
            "image_sizes": OnHost(torch.tensor([[448, 448]], device="cpu")),
            "num_img_tokens": OnHost(torch.tensor([545], device="cpu")),
        },
        "2 audio": {"input_audio_embeds": [numbers(1, 203, 80), numbers(2, 40, 80)]},
    }


RECIPES = [
    Recipe(models=("Phi4MMForCausalLM",), config=phi4mm, cases=phi4mm_cases, patches=small),
]
