"""Qwen3-Omni, audio: convolutions over chunks of the spectrogram, then layers over windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Qwen3OmniMoeThinkerConfig
from vllm.model_executor.models.qwen3_omni_moe_thinker import (
    Qwen3OmniMoeAudioEncoder,
    _get_feat_extract_output_lengths,
)

from tests.towers.family import Family, numbers

MEL_BINS = 32
CASES = {
    "one clip": [60],
    "long clip": [730],
    "several clips": [250, 37, 100, 201],
}
"""Frames of each clip. A chunk has 100 frames, as the output lengths assume."""


def build() -> nn.Module:
    config = Qwen3OmniMoeThinkerConfig(
        audio_config={
            "d_model": 64,
            "encoder_layers": 5,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "num_mel_bins": MEL_BINS,
            "downsample_hidden_size": 16,
            "output_dim": 96,
            "n_window": 50,
            "n_window_infer": 200,
            "conv_chunksize": 4,
            "max_source_positions": 64,
        }
    )
    return Qwen3OmniMoeAudioEncoder(config.audio_config, prefix="audio_tower")


def inputs(dtype: torch.dtype) -> dict[str, dict[str, Any]]:
    return {
        case: {
            "input_features": numbers(len(case), MEL_BINS, sum(frames), dtype=dtype),
            "feature_lens": frames,
        }
        for case, frames in CASES.items()
    }


def run(tower: nn.Module, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    features = inputs["input_features"]
    # The model moves the lengths to the features' device.
    lengths = torch.tensor(inputs["feature_lens"], device="cpu").to(features.device)
    output_lengths = _get_feat_extract_output_lengths(lengths)
    output = tower(features.to(tower.dtype), feature_lens=lengths, aftercnn_lens=output_lengths)
    return tuple(output.split(output_lengths.tolist()))


FAMILY = Family(name="qwen3_omni_audio", build=build, inputs=inputs, run=run)
