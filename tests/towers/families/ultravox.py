"""Ultravox: `audio_tower` (a Whisper encoder) and `multi_modal_projector` are marked as tower.

Blocks: `audio_tower.layers`, each entered by its `forward`; the encoder hands them to
`wrap_modules` itself, so that they reach the offloader twice. The projector here is the one of
attention layers: `multi_modal_projector.layers` is a second block list of the same shapes (the
projector of older models has two linear layers instead). No parameter is shared.

`audio_tower.embed_positions` is never entered: the encoder reads its weight. From the first block
of each list the model takes `self_attn.attn`, for its backend: no weight is read there. The tower's
dtype is that of `audio_tower.conv1.weight`. Batches above 16 chunks run in several passes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from vllm.model_executor.models.ultravox import (
    UltravoxModel,
    UltravoxTransformerProjector,
    UltravoxWhisperEncoder,
)
from vllm.transformers_utils.configs.ultravox import UltravoxConfig

from tests.towers.family import Family, numbers

MEL_BINS, POSITIONS, STACK = 16, 20, 4
CASES = {
    "one clip": [[31]],
    "several clips": [[40, 40, 9], [22], [40, 5]],
    "two passes": [[40, 9, 30, 22, 11], [3], [8] * 12],
}
"""Frames of each chunk of each clip."""


class UltravoxTower(UltravoxModel):
    """The model without its language model."""

    def __init__(self, config: UltravoxConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.pad_audio_to_max_context = False

        def engine_config(hf_config: Any, architectures: Any = None) -> Any:
            return SimpleNamespace(
                model_config=SimpleNamespace(hf_config=hf_config),
                cache_config=None,
                quant_config=None,
                with_hf_config=engine_config,
            )

        self.audio_tower = UltravoxWhisperEncoder(
            vllm_config=engine_config(config.audio_config), prefix="audio_tower", enable_pp=False
        )
        self.multi_modal_projector = UltravoxTransformerProjector(
            engine_config(config), prefix="multi_modal_projector"
        )


def build() -> nn.Module:
    """Five layers in the encoder, four in the projector."""
    return UltravoxTower(
        UltravoxConfig(
            audio_config={
                "model_type": "whisper",
                "d_model": 64,
                "encoder_layers": 5,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 128,
                "num_mel_bins": MEL_BINS,
                "max_source_positions": POSITIONS,
            },
            text_config={"model_type": "llama", "hidden_size": 96, "num_attention_heads": 4},
            stack_factor=STACK,
            num_projector_layers=4,
        )
    )


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the padded chunks (chunks, 16, frames) and the frames of each."""
    cases = {}
    for case, clips in CASES.items():
        frames = [frame for clip in clips for frame in clip]
        cases[case] = {
            "chunks": numbers(len(frames), len(frames), MEL_BINS, max(frames), dtype=dtype),
            # The model wants the tokens of each chunk on its device, the frames on the host.
            "tokens": torch.tensor([-(-frame // (2 * STACK)) for frame in frames], device="cpu"),
            "frames": frames,
            "chunks_of_clip": [len(clip) for clip in clips],
        }
    return cases


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each clip."""
    return tower.embed_multimodal(
        audio_features=case["chunks"],
        audio_token_len=case["tokens"],
        audio_lens=torch.tensor(case["frames"], device="cpu"),
        audio_num_chunks=torch.tensor(case["chunks_of_clip"], device="cpu"),
    )


FAMILY = Family(name="ultravox", build=build, inputs=inputs, run=run)
