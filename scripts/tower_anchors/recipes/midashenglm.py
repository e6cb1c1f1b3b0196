"""MiDashengLM: an audio tower that takes waveforms, with two position tables of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers
from torch import nn

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class

MELS = 32
HOP = 160


class Frames(nn.Module):
    """What stands for torchaudio's spectrogram, which has no weights: numbers of the same shape."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        """Of waveforms (clips, samples), features (clips, mels, frames)."""
        return waveform.unfold(-1, HOP, HOP)[..., :MELS].transpose(1, 2)


@contextmanager
def without_torchaudio() -> Iterator[None]:
    with patch("vllm.model_executor.models.midashenglm.DashengFrontend", Frames):
        yield


def config(architecture: str) -> Any:
    return config_class("MiDashengLMConfig")(
        audio_encoder_config={
            "embed_dim": 64,
            "num_heads": 2,
            "depth": 2,
            "n_mels": MELS,
            "patch_size": (MELS, 4),
            "patch_stride": (MELS, 4),
            "target_length": 64,
            "hop_length": HOP,
            "init_values": 0.5,
        },
        text_config=TEXT,
    )


def cases(config: Any) -> dict[str, dict[str, Any]]:
    return {
        f"{len(lengths)} audio": {
            "input_values": numbers(1, len(lengths), max(lengths)),
            "audio_length": torch.tensor(lengths),
        }
        for lengths in ([40 * HOP], [160 * HOP, 100 * HOP, 130 * HOP])
    }


RECIPES = [
    Recipe(
        models=("MiDashengLMModel",),
        towers=("DashengAudioTransformer",),
        config=config,
        cases=cases,
        patches=without_torchaudio,
    )
]
