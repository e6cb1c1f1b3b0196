"""Whisper and the audio encoders that are made of it, in vLLM or in transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.tiny import TEXT, config_class, on_host

MEL_BINS, FRAMES = 16, 40
"""Of a spectrogram; the convolutions make half as many positions of the frames."""
WHISPER: dict[str, Any] = {
    "model_type": "whisper",
    "d_model": 64,
    "encoder_layers": 3,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 96,
    "num_mel_bins": MEL_BINS,
    "max_source_positions": FRAMES // 2,
}
LLAMA = TEXT | {"model_type": "llama"}
QWEN2 = TEXT | {"model_type": "qwen2"}


def mask(lengths: list[int], frames: int = FRAMES) -> torch.Tensor:
    """Which frames of each clip are real: (clips, frames)."""
    return torch.tensor([[int(i < length) for i in range(frames)] for length in lengths])


def clips(count: int, frames: int = FRAMES) -> torch.Tensor:
    return numbers(count, count, MEL_BINS, frames)


def whisper(architecture: str) -> Any:
    return config_class("WhisperConfig")(
        **WHISPER,
        vocab_size=128,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=64,
        pad_token_id=0,
        max_target_positions=64,
    )


def ultravox(architecture: str) -> Any:
    from vllm.transformers_utils.configs.ultravox import UltravoxConfig

    config = UltravoxConfig(
        audio_config=WHISPER, text_config=LLAMA, stack_factor=4, num_projector_layers=2
    )
    config.vocab_size = 128
    return config


def ultravox_cases(config: Any) -> dict[str, Any]:
    cases = {}
    for frames, chunks in (([31], [1]), ([40, 40, 9, 22], [3, 1])):
        cases[f"{len(chunks)} audio"] = {
            "audio_features": clips(len(frames)),
            "audio_token_len": torch.tensor([-(-frame // 8) for frame in frames]),
            "audio_lens": on_host(frames),
            "audio_num_chunks": on_host(chunks),
        }
    return cases


def flamingo(architecture: str) -> Any:
    return config_class("AudioFlamingo3Config")(
        audio_config={
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 96,
            "num_mel_bins": MEL_BINS,
            "max_source_positions": 1500,
        },
        text_config=QWEN2,
    )


def glm_asr(architecture: str) -> Any:
    return config_class("GlmAsrConfig")(
        audio_config={
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "intermediate_size": 128,
            "num_mel_bins": MEL_BINS,
            "max_position_embeddings": FRAMES,
        },
        text_config=LLAMA,
    )


def chunk_cases(total: int) -> dict[str, Any]:
    """Clips of one and two chunks, each of so many frames, of which the last ones may be empty."""
    return {
        f"{len(counts)} audio": {
            "input_features": clips(len(frames), total),
            "feature_attention_mask": mask(frames, total),
            "chunk_counts": on_host(counts),
        }
        for frames, counts in (([total - 4], [1]), ([total, total, 18], [2, 1]))
    }


def moss(architecture: str) -> Any:
    return config_class("MossTranscribeDiarizeConfig")(
        audio_config=WHISPER, text_config=TEXT | {"model_type": "qwen3"}, audio_merge_size=4
    )


def moss_cases(config: Any) -> dict[str, Any]:
    return {
        f"{len(counts)} audio": {
            "input_features": clips(len(tokens)),
            "audio_feature_lengths": torch.tensor(tokens),
            "audio_chunk_counts": on_host(counts),
            "audio_token_lengths": on_host(tokens[: len(counts)]),
        }
        for tokens, counts in (([4], [1]), ([5, 5, 3], [2, 1]))
    }


def qwen2_audio(architecture: str) -> Any:
    return config_class("Qwen2AudioConfig")(
        audio_config=WHISPER | {"model_type": "qwen2_audio_encoder", "max_source_positions": 1500},
        text_config=QWEN2,
    )


def qwen2_audio_cases(config: Any) -> dict[str, Any]:
    return {
        f"{len(frames)} audio": {
            "input_features": clips(len(frames), 3000),
            "feature_attention_mask": mask(frames, 3000),
        }
        for frames in ([50], [3000, 17])
    }


def voxtral(architecture: str) -> Any:
    base = config_class("PretrainedConfig")
    whisper = config_class("WhisperConfig")(
        **WHISPER, is_causal=False, sampling_rate=16000, window_size=400, hop_length=160
    )
    whisper.downsample_factor, whisper.global_log_mel_max = 4, None
    text = config_class("MistralConfig")(**TEXT)
    config = base(audio_config=whisper, text_config=text, architectures=[architecture])
    return config


@contextmanager
def spectrogram() -> Iterator[None]:
    """Voxtral takes waveforms; the stand-in has no Fourier transform of them."""
    from vllm.model_executor.models.voxtral import VoxtralEncoderModel as Encoder

    plain = Encoder.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        self.compute_whisper_melspec = lambda wave: wave.view(MEL_BINS, -1)

    with patch.object(Encoder, "__init__", init):
        yield


RECIPES = [
    Recipe(
        models=("WhisperForConditionalGeneration",),
        towers=("WhisperEncoder",),
        config=whisper,
        cases=lambda config: {
            "1 audio": {"input_features": clips(1)},
            "3 audio": {"input_features": clips(3)},
        },
    ),
    Recipe(models=("UltravoxModel",), config=ultravox, cases=ultravox_cases),
    Recipe(
        models=("AudioFlamingo3ForConditionalGeneration",),
        config=flamingo,
        cases=lambda config: chunk_cases(3000),
    ),
    Recipe(
        models=("GlmAsrForConditionalGeneration",),
        config=glm_asr,
        cases=lambda config: chunk_cases(FRAMES),
    ),
    Recipe(
        models=("MossTranscribeDiarizeForConditionalGeneration",), config=moss, cases=moss_cases
    ),
    Recipe(
        models=("Qwen2AudioForConditionalGeneration",),
        config=qwen2_audio,
        cases=qwen2_audio_cases,
    ),
    Recipe(
        models=("VoxtralForConditionalGeneration",),
        config=voxtral,
        cases=lambda config: {
            "2 audio": {"audio_arrays": [numbers(n, n * MEL_BINS * FRAMES) for n in (1, 2)]},
        },
        patches=spectrogram,
    ),
]
