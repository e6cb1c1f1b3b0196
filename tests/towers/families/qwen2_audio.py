"""Qwen2-Audio: `audio_tower` and `multi_modal_projector` are marked as tower.

Blocks: `audio_tower.layers`, each entered by its `forward` (through the `__call__` that
transformers gives its layers). No parameter is shared. `embed_positions` is never entered: the
encoder reads its weight. The model reads the dtype of `audio_tower.conv1.weight`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.models.qwen2_audio import Qwen2AudioConfig
from vllm.model_executor.models.audioflamingo3 import AudioFlamingo3Encoder
from vllm.model_executor.models.qwen2_audio import (
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioMultiModalProjector,
)

from tests.towers.family import Family, numbers

MEL_BINS, FRAMES = 16, 80
CASES = {"one clip": [50], "several clips": [80, 17, 49]}
"""Frames of each clip."""


class Qwen2AudioTower(Qwen2AudioForConditionalGeneration):
    """The model without its language model."""

    def __init__(self, config: Qwen2AudioConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.audio_tower = AudioFlamingo3Encoder(config.audio_config)
        self.multi_modal_projector = Qwen2AudioMultiModalProjector(
            config.audio_config.d_model, config.text_config.hidden_size
        )


def build() -> nn.Module:
    """Five layers over 40 positions, then a pooling of two."""
    return Qwen2AudioTower(
        Qwen2AudioConfig(
            audio_config={
                "model_type": "qwen2_audio_encoder",
                "d_model": 64,
                "encoder_layers": 5,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 128,
                "num_mel_bins": MEL_BINS,
                "max_source_positions": FRAMES // 2,
            },
            text_config={"model_type": "qwen2", "hidden_size": 96},
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Padded spectrograms (clips, 16, 80) and which of their frames are real (clips, 80)."""
    return {
        case: {
            "features": numbers(len(frames), len(frames), MEL_BINS, FRAMES, dtype=dtype),
            "mask": torch.arange(FRAMES, device="cpu")
            < torch.tensor(frames, device="cpu").unsqueeze(1),
        }
        for case, frames in CASES.items()
    }


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each clip.

    The model's own check of its inputs is left out: it wants 30 seconds.
    """
    features = {
        "type": "audio_features",
        "input_features": case["features"],
        "feature_attention_mask": case["mask"],
    }
    # The CPU has its own attention kernel; every device has this one.
    with sdpa_kernel(SDPBackend.MATH):
        return tower._process_audio_input(features)


FAMILY = Family(name="qwen2_audio", build=build, inputs=inputs, run=run)
