"""Qwen-Omni and Qwen-ASR: a vision tower as Qwen-VL's, and an audio tower for whole clips."""

from __future__ import annotations

from typing import Any

from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import ROPE, TEXT, config_class, grid_cases, on_host

MEL_BINS = 32
CLIPS = ([60], [250, 37, 100])
"""Frames of each clip of each case."""

QWEN3_AUDIO: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "num_mel_bins": MEL_BINS,
    "downsample_hidden_size": 16,
    "output_dim": 64,
    "n_window": 50,
    "n_window_infer": 200,
    "conv_chunksize": 4,
    "max_source_positions": 64,
}


JOINT_HEAD = {
    "hidden_size": 64,
    "width": 32,
    "routing_layers": 1,
    "layers": 1,
    "heads": 1,
    "feedforward": 32,
}
"""Of a model that classifies: no part of a tower."""


def clip_cases() -> dict[str, dict[str, Any]]:
    return {
        f"{len(frames)} audio": {
            "input_audio_features": numbers(1, MEL_BINS, sum(frames)),
            "audio_feature_lengths": on_host(frames),
            "feature_attention_mask": on_host([[1] * max(frames)] * len(frames)),
        }
        for frames in CLIPS
    }


def qwen3_omni(architecture: str) -> Any:
    config = config_class("Qwen3OmniMoeConfig")(
        thinker_config={
            "vision_config": {
                "depth": 3,
                "hidden_size": 64,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": 64,
                "patch_size": 16,
                "image_size": 96,
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 2],
                "apply_vit_abs_pos_embed": True,
            },
            "audio_config": QWEN3_AUDIO,
            "text_config": TEXT | {"rope_parameters": ROPE},
        }
    )
    if architecture == "ClefOmniForJointSchema":
        config.joint_head_config = JOINT_HEAD
    return config


def qwen3_asr(architecture: str) -> Any:
    # Not the one of transformers, which nests otherwise.
    from vllm.transformers_utils.configs.qwen3_asr import Qwen3ASRConfig

    config = Qwen3ASRConfig(thinker_config={"audio_config": QWEN3_AUDIO, "text_config": TEXT})
    config.thinker_config.classify_num = 4  # the forced aligner's
    return config


def qwen2_5_omni(architecture: str) -> Any:
    return config_class("Qwen2_5OmniConfig")(
        thinker_config={
            "vision_config": {
                "depth": 3,
                "hidden_size": 64,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": 64,
                "patch_size": 14,
                "window_size": 56,
                "fullatt_block_indexes": [1],
            },
            "audio_config": {
                "d_model": 64,
                "encoder_layers": 2,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 64,
                "num_mel_bins": MEL_BINS,
                "output_dim": 64,
                "n_window": 50,
                "max_source_positions": 256,
            },
            "text_config": TEXT | {"rope_parameters": ROPE},
        }
    )


RECIPES = [
    Recipe(
        models=(
            "Qwen3OmniMoeForConditionalGeneration",
            "Qwen3OmniMoeThinkerForConditionalGeneration",
        ),
        towers=("Qwen3Omni_VisionTransformer",),
        config=qwen3_omni,
        cases=lambda config: grid_cases(3 * 2 * 16 * 16) | clip_cases(),
    ),
    Recipe(
        models=(
            "Qwen3ASRForConditionalGeneration",
            "Qwen3ASRForcedAlignerForTokenClassification",
        ),
        towers=("Qwen3OmniMoeAudioEncoder",),
        config=qwen3_asr,
        cases=lambda config: clip_cases(),
    ),
    Recipe(
        models=("Qwen2_5OmniModel", "Qwen2_5OmniThinkerForConditionalGeneration"),
        config=qwen2_5_omni,
        cases=lambda config: grid_cases(3 * 2 * 14 * 14) | clip_cases(),
    ),
]
