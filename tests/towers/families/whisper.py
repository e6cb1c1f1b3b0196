"""Whisper: `model.encoder` is marked as tower, as a descendant, not as a child of the model.

Blocks: `model.encoder.layers`, each entered by its `forward`. The encoder makes them by
`make_layers` (or hands them to `wrap_modules` itself, without pipeline stages), so that they reach
the offloader twice: there, without a name, and with the mark. No parameter is shared.

`embed_positions` is never entered: the encoder reads its weight, outside any `forward` of it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import WhisperConfig
from vllm.model_executor.models.whisper import (
    WhisperEncoder,
    WhisperForConditionalGeneration,
    WhisperModel,
)

from tests.towers.family import Family, numbers

MEL_BINS, FRAMES = 16, 40


class EncoderOnly(WhisperModel):
    """The inner model without its decoder."""

    def __init__(self, config: WhisperConfig) -> None:
        nn.Module.__init__(self)
        self.encoder = WhisperEncoder(
            vllm_config=SimpleNamespace(
                model_config=SimpleNamespace(hf_config=config), cache_config=None, quant_config=None
            ),
            prefix="model.encoder",
        )


class WhisperTower(WhisperForConditionalGeneration):
    """The model without its decoder and head."""

    def __init__(self, config: WhisperConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.dtype = torch.get_default_dtype()
        self.model = EncoderOnly(config)


def build() -> nn.Module:
    """Five layers over 20 positions."""
    return WhisperTower(
        WhisperConfig(
            d_model=64,
            encoder_layers=5,
            encoder_attention_heads=4,
            encoder_ffn_dim=128,
            num_mel_bins=MEL_BINS,
            max_source_positions=FRAMES // 2,
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Spectrograms (clips, 16, 40); Whisper pads each clip to its full length."""
    return {
        case: numbers(clips, clips, MEL_BINS, FRAMES, dtype=dtype)
        for case, clips in (("one clip", 1), ("several clips", 3))
    }


def run(tower: Any, case: torch.Tensor) -> Any:
    """Hidden states, one tensor (20, 64) for each clip."""
    return tower.embed_multimodal(input_features=case)


FAMILY = Family(name="whisper", build=build, inputs=inputs, run=run)
