"""More speech encoders: MOSS-Audio, FireRedASR2, FunASR, Fun-Audio-Chat, Kimi-Audio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tests.towers.family import numbers

from tower_anchors.recipe import Recipe
from tower_anchors.recipes.whisper_kin import MEL_BINS, WHISPER
from tower_anchors.tiny import TEXT, config_class, on_host


def bare(architecture: str, **values: Any) -> Any:
    """A configuration of a language model that has more in it."""
    config = config_class("Qwen2Config")(**TEXT)
    config.architectures = [architecture]
    for name, value in values.items():
        setattr(config, name, value)
    return config


def moss_audio(architecture: str) -> Any:
    from vllm.model_executor.models.moss_audio import MossAudioConfig

    return MossAudioConfig(
        audio_config={
            "d_model": 64,
            "output_dim": 64,
            "num_mel_bins": MEL_BINS,
            "encoder_layers": 3,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 96,
            "downsample_hidden_size": 8,
            "max_source_positions": 64,
            "n_window": 20,
            "conv_chunksize": 4,
            "deepstack_encoder_layer_indexes": [0, 1],
        },
        language_config=TEXT | {"model_type": "qwen3"},
        adapter_hidden_size=96,
        deepstack_num_inject_layers=2,
    )


def fire_red(architecture: str) -> Any:
    return bare(
        architecture,
        audio_encoder_conf={
            "idim": 80,
            "n_layers_enc": 2,
            "n_head": 2,
            "d_model": 64,
            "kernel_size": 5,
            "pe_maxlen": 200,
        },
        encoder_downsample_rate=2,
    )


def fun_asr(architecture: str) -> Any:
    return bare(
        architecture,
        audio_encoder_conf={
            "output_size": 512,
            "attention_heads": 2,
            "linear_units": 96,
            "num_blocks": 2,
            "tp_blocks": 1,
            "kernel_size": 5,
        },
    )


def fun_audio_chat(architecture: str) -> Any:
    from vllm.transformers_utils.configs.funaudiochat import FunAudioChatConfig

    return FunAudioChatConfig(
        audio_config={
            "num_mel_bins": MEL_BINS,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 96,
            "d_model": 64,
            "max_source_positions": 64,
            "n_window": 10,
            "output_dim": 64,
            "codebook_size": 33,
            "pad_token_id": 0,
            "group_size": 5,
        },
        text_config=TEXT | {"model_type": "qwen3"},
    )


def fun_audio_chat_cases(config: Any) -> dict[str, Any]:
    frames = torch.tensor([[38], [21]])
    return {
        "2 audio": {
            "speech_ids": torch.arange(20).view(2, 10) % 33,
            "speech_attention_mask": on_host([[1] * 10, [1] * 6 + [0] * 4]),
            "input_features": numbers(1, 2, MEL_BINS, 40),
            "feature_attention_mask": (torch.arange(40) < frames).long(),
            "feature_exist_mask": torch.tensor([True, True]),
        }
    }


@contextmanager
def whisper_config() -> Iterator[None]:
    """Kimi-Audio reads it from a folder of the model."""
    from vllm.model_executor.models import kimi_audio

    config = config_class("WhisperConfig")(**WHISPER)
    with patch.object(
        kimi_audio.HFWhisperConfig, "from_pretrained", lambda *args, **kwargs: config
    ):
        yield


RECIPES = [
    Recipe(
        models=("MossAudioModel",),
        config=moss_audio,
        cases=lambda config: {
            "2 audio": {
                "audio_data": numbers(1, 2, MEL_BINS, 90),
                "audio_data_seqlens": torch.tensor([90, 37]),
            }
        },
    ),
    Recipe(
        models=("FireRedASR2ForConditionalGeneration",),
        config=fire_red,
        cases=lambda config: {
            "2 audio": {
                "input_features": numbers(1, 2, 60, 80),
                "speech_lengths": torch.tensor([60, 33]),
                "fake_token_lengths": on_host([7, 4]),
            }
        },
    ),
    Recipe(
        models=("FunASRForConditionalGeneration",),
        config=fun_asr,
        cases=lambda config: {
            "2 audio": {
                "input_features": numbers(1, 2, 30, 560),
                "speech_lengths": torch.tensor([30, 17]),
                "fake_token_lengths": on_host([30, 17]),
            }
        },
    ),
    Recipe(
        models=("FunAudioChatForConditionalGeneration",),
        config=fun_audio_chat,
        cases=fun_audio_chat_cases,
    ),
    Recipe(
        models=("MoonshotKimiaForCausalLM",),
        config=lambda architecture: bare(architecture, kimia_adaptor_input_dim=256),
        cases=lambda config: {"2 audio": {"whisper_input_features": numbers(1, 2, MEL_BINS, 40)}},
        patches=whisper_config,
    ),
]
