"""What a rank needs beside weights and KV cache: modelled, not measured.

Each figure says where it comes from. None of them was measured here, on any card. vLLM measures
its own at start-up and gives the KV cache what is left: these only say what to expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rig.memory.architecture import Architecture
from rig.memory.headers import BITS

MIB = 2**20

CUDA_CONTEXT = 400 * MIB
"""Assumed: the context, with kernels loaded. It lies outside of what vLLM counts as its budget."""
LIBRARIES = 150 * MIB
"""Assumed: workspaces of cuBLAS and of attention kernels, which torch does not count."""
NCCL = 300 * MIB
"""Assumed: NCCL's buffers and its own context, with two or more ranks."""
CUDA_GRAPHS = 1229 * MIB
"""Published by one owner of a rig: 1.2 GiB with Model Runner V2 (the field list, row 16)."""

SEQUENCES = 256
BATCHED_TOKENS = 2048
"""vLLM 0.33.0's own for cards below 70 GiB (`engine/arg_utils.py`)."""

SAMPLER_BYTES = 26
"""Bytes per request and token of the vocabulary in the sampler's profile run. Modelled: logits in
the model's type and in float32, sorted values and their places, probabilities and their sums."""


@dataclass(frozen=True)
class Images:
    """The largest picture: patches that the tower sees, tokens that the language model gets."""

    patches: int
    tokens: int


def decoder_peak(
    model: Architecture,
    tensor: int,
    dtype: str,
    *,
    batched_tokens: int = BATCHED_TOKENS,
    sequences: int = SEQUENCES,
) -> int:
    """Bytes at the peak of the language model's profile run.

    Modelled: per token the residual, the input and the larger one of attention's and the
    feed-forward layer's own (its gate, its up and their product; with experts, once for each that
    a token is sent to); or the sampler, where that takes more.
    """
    width = BITS[dtype] // 8
    kv_heads = max(1, model.kv_heads // tensor)
    attention = (2 * model.heads // tensor + 2 * kv_heads) * model.head_size
    inner = 3 * model.intermediate // tensor
    if model.experts:
        experts = model.experts
        routed = experts.per_token * (3 * experts.intermediate // tensor + model.hidden)
        inner = max(routed + 3 * experts.shared // tensor, inner if not model.moe_layers else 0)
    layers = batched_tokens * width * (3 * model.hidden + max(attention, inner))
    sampler = min(sequences, batched_tokens) * model.vocabulary * SAMPLER_BYTES
    hidden = 2 * batched_tokens * width * model.hidden
    return max(layers, sampler + hidden)


def images_of(
    vision: Mapping[str, Any],
    preprocessor: Mapping[str, Any] | None,
    max_pixels: int | None,
    tokens: int | None = None,
) -> Images:
    """The largest picture of a tower: by its preprocessor, or by the fixed size of its config.

    `tokens` is what the language model gets of a picture, where the config says so.
    """
    patch = _side(vision.get("patch_size"), 14)
    merge = int(vision.get("spatial_merge_size") or 1)
    side = vision.get("image_size")
    if isinstance(side, int) and side and "spatial_merge_size" not in vision:
        patches = (side // patch) ** 2
        return Images(patches, tokens or patches)
    said = preprocessor or {}
    size = said.get("size") if isinstance(said.get("size"), Mapping) else {}
    assert isinstance(size, Mapping)
    # What Qwen's own processors take where nothing is said: 12,845,056 pixels.
    pixels = said.get("max_pixels") or size.get("longest_edge") or size.get("max_pixels")
    area = int(pixels or 12_845_056)
    if max_pixels is not None:
        area = min(area, max_pixels)
    patches = max(area // patch**2, merge**2)
    return Images(patches, max(patches // merge**2, 1))


def _side(size: Any, otherwise: int) -> int:
    if isinstance(size, Mapping):
        size = max(size.values(), default=otherwise)
    if isinstance(size, (list, tuple)):
        size = max(size, default=otherwise)
    return int(size or otherwise)


def encoder_peak(
    model: Architecture,
    vision: Mapping[str, Any],
    images: Images,
    tensor: int,
    dtype: str,
    *,
    batched_tokens: int = BATCHED_TOKENS,
) -> int:
    """Bytes at the peak of the tower's profile run. `tensor` is 1 where a rank runs it whole.

    Modelled: vLLM profiles as many pictures as fill its encoder budget (the larger one of the
    batched tokens and of one picture); per patch the pixels, the residual, the input and the
    larger one of attention's and the feed-forward layer's own; and the outputs of all of them.
    """
    width = BITS[dtype] // 8
    hidden = int(vision.get("embed_dim") or vision.get("hidden_size") or 1024)
    ratio = float(vision.get("mlp_ratio") or 4)
    inner = int(vision.get("intermediate_size") or ratio * hidden)
    patch = _side(vision.get("patch_size"), 14)
    times = int(vision.get("temporal_patch_size") or 1)
    pictures = max(batched_tokens // images.tokens, 1)
    patches = pictures * images.patches
    within = max(4 * hidden, 2 * inner) // tensor
    per_patch = 3 * times * patch * patch + 3 * hidden + within
    stacks = len(vision.get("deepstack_visual_indexes") or ())
    out = pictures * images.tokens * model.hidden * (1 + stacks)
    return width * (patches * per_patch + 2 * out)
