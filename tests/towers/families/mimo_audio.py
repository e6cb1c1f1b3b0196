"""MiMo-V2-Omni, audio: `audio_encoder` is marked as tower; it is entered by `get_audio_feature`.

Three block lists, and two that only look like one:
- `audio_tokenizer.encoder.layers`: each block entered by its `forward`, though the encoder above it
  is entered by `encode`.
- `input_local_transformer.layers` (Qwen2 of transformers): entered by `forward`. Its `embed_tokens`
  is a table of a whole vocabulary, 151,936 rows, that is never entered: it is left out here.
- `audio_tokenizer.encoder.quantizer.vq.layers`: entered by `encode` and `decode`, never by
  `forward`. Its members hold buffers alone, no parameter, so that there is nothing to stream; the
  model calls `quantizer.float()` at each encode.
- `speech_embeddings`: a list of embeddings of unlike sizes.

No parameter is shared. The model takes dtype and device from `audio_tokenizer.encoder`'s first
parameter (`conv1.weight`), the dtype from `speech_embeddings[0].weight` and from `conv1.weight`.

The tokenizer's weights are there when the tower is marked: they are read from a folder of the model
while it is built, in bfloat16 whatever the model's dtype, and `load_weights` never sees them. So an
offloader may not drop what it finds at the mark, and "dummy" weights overwrite them.

The attention of the tokenizer is a CUDA kernel. Here a plain one stands in for it.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from vllm.model_executor.models.mimo_audio import (
    EuclideanCodebook,
    MimoAudioEncoder,
    MimoAudioEncoderConfig,
    MiMoAudioTokenizer,
    MiMoAudioTokenizerConfig,
)

from tests.towers.family import Family, new_parameters_on_conversion, numbers

MEL_BINS = 16
CASES = {"one clip": [70], "several clips": [150, 9, 64]}
"""Frames of each clip. A segment has 64."""


def build() -> nn.Module:
    """Five layers and three quantizers in the tokenizer, four local layers."""
    tower = MimoAudioEncoder(
        MimoAudioEncoderConfig(
            speech_vocab_size="33-33-17",
            speech_zeroemb_idx="32-32-16",
            group_size=4,
            audio_channels=3,
            input_local_layers=4,
            input_local_dim=64,
            input_local_attn_heads=4,
            input_local_head_dim=16,
            input_local_intermediate_size=128,
            out_hidden_size=96,
            projection_layers=2,
            add_post_norm=True,
            audio_segment_size=64,
        )
    )
    del tower.input_local_transformer.embed_tokens
    tokenizer = MiMoAudioTokenizer(
        MiMoAudioTokenizerConfig(
            avg_pooler=2,
            d_model=64,
            encoder_layers=5,
            encoder_skip_layer_id=3,
            encoder_attention_heads=4,
            encoder_ffn_dim=128,
            encoder_attn_window_size=[8, 0],
            encoder_causal=True,
            hybrid_attention=True,
            n_mels=MEL_BINS,
            num_quantizers=3,
            codebook_size=[32, 32, 16],
        )
    )
    for index, module in enumerate(tokenizer.modules()):
        if isinstance(module, EuclideanCodebook):
            module.embed.copy_(numbers(index, *module.embed.shape))
    with new_parameters_on_conversion():
        tower.audio_tokenizer = tokenizer.to(torch.bfloat16)  # as the model loads it
    return tower


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Spectrograms, one (frames, 16) for each clip."""
    return {
        case: [numbers(length, length, MEL_BINS, dtype=dtype) for length in frames]
        for case, frames in CASES.items()
    }


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    causal: bool,
    window_size: list[int],
    **_: Any,
) -> torch.Tensor:
    """Attention within each segment, (tokens, heads, width); a window of -1 has no end."""
    ends = cu_seqlens_q.cpu().tolist()
    results = []
    for start, end in pairwise(ends):
        q, k, v = (x[start:end].transpose(0, 1) for x in (query, key, value))
        place = torch.arange(end - start, device=query.device)
        ahead = place[None, :] - place[:, None]
        left, right = window_size
        seen = ahead <= (0 if causal else end if right < 0 else right)
        if left >= 0:
            seen = seen & (ahead >= -left)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        results.append(out.transpose(0, 1))
    return torch.cat(results)


def run(tower: Any, case: list[torch.Tensor]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each clip."""
    kernels = ModuleType("vllm.vllm_flash_attn")
    kernels.flash_attn_varlen_func = _attention  # type: ignore[attr-defined]
    with (
        patch.dict(sys.modules, {kernels.__name__: kernels}),
        # The CPU has its own attention kernel; every device has this one.
        sdpa_kernel(SDPBackend.MATH),
    ):
        embeddings, lengths = tower.get_audio_feature(case)
    return embeddings.split(lengths)


FAMILY = Family(name="mimo_audio", build=build, inputs=inputs, run=run)
