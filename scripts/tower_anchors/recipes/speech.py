"""Speech encoders that are not Whisper's: conformers and their like."""

from __future__ import annotations

from typing import Any

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, on_host


def granite_speech(architecture: str) -> Any:
    plus = "Plus" in architecture
    return config_class("GraniteSpeechPlusConfig" if plus else "GraniteSpeechConfig")(
        encoder_config={
            "input_dim": 160,
            "hidden_dim": 64,
            "num_layers": 2,
            "num_heads": 2,
            "dim_head": 32,
            "output_dim": 12,
            "context_size": 20,
            "max_pos_emb": 24,
            "feedforward_mult": 2,
            "conv_expansion_factor": 2,
            "conv_kernel_size": 5,
        }
        | ({"cat_hidden_layers": [1]} if plus else {}),
        projector_config={
            "model_type": "blip_2_qformer",
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 48,
            "encoder_hidden_size": 128 if plus else 64,
        },
        text_config=TEXT | {"model_type": "granite"},
        window_size=15,
        downsample_rate=5,
    )


def granite_cases(config: Any) -> dict[str, Any]:
    return {
        "1 audio": {
            "input_features": numbers(1, 1, 41, 160),
            "audio_embed_sizes": on_host([[9]]),
        },
        "2 audio": {
            "input_features": [numbers(1, 41, 160), numbers(2, 25, 160)],
            "audio_embed_sizes": on_host([[9], [6]]),
        },
    }


def cohere_asr(architecture: str) -> Any:
    config = config_class("PretrainedConfig")(
        architectures=[architecture],
        head={"num_classes": 128, "hidden_size": 64, "log_softmax": True},
        encoder={
            "feat_in": 16,
            "n_layers": 2,
            "d_model": 64,
            "feat_out": -1,
            "causal_downsampling": False,
            "subsampling": "dw_striding",
            "subsampling_factor": 4,
            "subsampling_conv_channels": 8,
            "ff_expansion_factor": 2,
            "self_attention_model": "rel_pos",
            "n_heads": 2,
            "att_context_size": [-1, -1],
            "xscaling": False,
            "untie_biases": True,
            "pos_emb_max_len": 64,
            "conv_kernel_size": 5,
            "conv_norm_type": "batch_norm",
            "conv_context_size": None,
        },
        transf_decoder={
            "config_dict": {
                "hidden_size": 96,
                "num_layers": 2,
                "num_attention_heads": 2,
                "inner_size": 96,
                "max_sequence_length": 64,
                "learn_positional_encodings": False,
                "hidden_act": "relu",
                "pre_ln": True,
                "pre_ln_final_layer_norm": True,
                "lm_dec_hidden_size": 96,
                "vocab_size": 128,
            },
            "vocab_size": 128,
        },
        vocab_size=128,
    )
    return config


RECIPES = [
    Recipe(
        models=("GraniteSpeechForConditionalGeneration",),
        config=granite_speech,
        cases=granite_cases,
    ),
    Recipe(
        models=("CohereAsrForConditionalGeneration",),
        config=cohere_asr,
        cases=lambda config: {
            "2 audio": {
                "input_features": numbers(1, 2, 16, 40),
                "length": torch.tensor([40, 23]),
            }
        },
    ),
]
