"""The weights of a vision tower of some config: the usual shapes of vision transformers.

The types that are known by name (Qwen2-VL to Qwen3-VL) have the names and shapes of their
checkpoints. Others are taken to be like CLIP and SigLIP: separate query, key and value, two
feed-forward weights, and a projector of two linears.
"""

from __future__ import annotations

from collections.abc import Iterator

from rig.memory.config_keys import Config
from rig.memory.headers import Tensor


def vision_tensors(vision: Config, text_hidden: int, dtype: str) -> list[Tensor]:
    """Compute the weights of a vision tower and its projector."""
    kind = str(vision.get("model_type") or "")
    if kind.startswith(("qwen3_vl", "qwen3_omni", "qwen3_5")):
        return list(_qwen3(vision, dtype))
    if kind.startswith(("qwen2_5_vl", "qwen2_5_omni")):
        return list(_qwen2_5(vision, dtype))
    if "embed_dim" in vision and "mlp_ratio" in vision:  # Qwen2-VL
        return list(_qwen2(vision, dtype))
    return list(_clip(vision, text_hidden, dtype))


def _linear(name: str, out: int, into: int, dtype: str, *, bias: bool = True) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", dtype, (out, into))
    if bias:
        yield Tensor(f"{name}.bias", dtype, (out,))


def _norm(name: str, size: int, dtype: str, *, bias: bool = True) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", dtype, (size,))
    if bias:
        yield Tensor(f"{name}.bias", dtype, (size,))


def _patches(name: str, vision: Config, hidden: int, dtype: str) -> Tensor:
    patch = int(vision.get("patch_size") or 14)
    times = int(vision.get("temporal_patch_size") or 2)
    channels = int(vision.get("in_channels") or vision.get("in_chans") or 3)
    return Tensor(name, dtype, (hidden, channels, times, patch, patch))


def _qwen3(vision: Config, dtype: str) -> Iterator[Tensor]:
    hidden, inner = int(vision["hidden_size"]), int(vision["intermediate_size"])
    out = int(vision.get("out_hidden_size") or hidden)
    merged = hidden * int(vision.get("spatial_merge_size") or 2) ** 2
    yield _patches("visual.patch_embed.proj.weight", vision, hidden, dtype)
    yield Tensor("visual.patch_embed.proj.bias", dtype, (hidden,))
    positions = int(vision.get("num_position_embeddings") or 2304)
    yield Tensor("visual.pos_embed.weight", dtype, (positions, hidden))
    for number in range(int(vision["depth"])):
        block = f"visual.blocks.{number}"
        yield from _linear(f"{block}.attn.qkv", 3 * hidden, hidden, dtype)
        yield from _linear(f"{block}.attn.proj", hidden, hidden, dtype)
        yield from _linear(f"{block}.mlp.linear_fc1", inner, hidden, dtype)
        yield from _linear(f"{block}.mlp.linear_fc2", hidden, inner, dtype)
        yield from _norm(f"{block}.norm1", hidden, dtype)
        yield from _norm(f"{block}.norm2", hidden, dtype)
    stacks = len(vision.get("deepstack_visual_indexes") or ())
    mergers = ["merger", *(f"deepstack_merger_list.{n}" for n in range(stacks))]
    for name in mergers:
        yield from _linear(f"visual.{name}.linear_fc1", merged, merged, dtype)
        yield from _linear(f"visual.{name}.linear_fc2", out, merged, dtype)
        yield from _norm(f"visual.{name}.norm", hidden if name == "merger" else merged, dtype)


def _qwen2_5(vision: Config, dtype: str) -> Iterator[Tensor]:
    hidden, inner = int(vision["hidden_size"]), int(vision["intermediate_size"])
    out = int(vision.get("out_hidden_size") or hidden)
    merged = hidden * int(vision.get("spatial_merge_size") or 2) ** 2
    yield _patches("visual.patch_embed.proj.weight", vision, hidden, dtype)
    for number in range(int(vision["depth"])):
        block = f"visual.blocks.{number}"
        yield from _linear(f"{block}.attn.qkv", 3 * hidden, hidden, dtype)
        yield from _linear(f"{block}.attn.proj", hidden, hidden, dtype)
        for part in ("gate_proj", "up_proj"):
            yield from _linear(f"{block}.mlp.{part}", inner, hidden, dtype)
        yield from _linear(f"{block}.mlp.down_proj", hidden, inner, dtype)
        yield from _norm(f"{block}.norm1", hidden, dtype, bias=False)
        yield from _norm(f"{block}.norm2", hidden, dtype, bias=False)
    yield from _norm("visual.merger.ln_q", hidden, dtype, bias=False)
    yield from _linear("visual.merger.mlp.0", merged, merged, dtype)
    yield from _linear("visual.merger.mlp.2", out, merged, dtype)


def _qwen2(vision: Config, dtype: str) -> Iterator[Tensor]:
    hidden = int(vision["embed_dim"])
    inner, out = int(hidden * float(vision["mlp_ratio"])), int(vision["hidden_size"])
    merged = hidden * int(vision.get("spatial_merge_size") or 2) ** 2
    yield _patches("visual.patch_embed.proj.weight", vision, hidden, dtype)
    for number in range(int(vision["depth"])):
        block = f"visual.blocks.{number}"
        yield from _linear(f"{block}.attn.qkv", 3 * hidden, hidden, dtype)
        yield from _linear(f"{block}.attn.proj", hidden, hidden, dtype)
        yield from _linear(f"{block}.mlp.fc1", inner, hidden, dtype)
        yield from _linear(f"{block}.mlp.fc2", hidden, inner, dtype)
        yield from _norm(f"{block}.norm1", hidden, dtype)
        yield from _norm(f"{block}.norm2", hidden, dtype)
    yield from _norm("visual.merger.ln_q", hidden, dtype)
    yield from _linear("visual.merger.mlp.0", merged, merged, dtype)
    yield from _linear("visual.merger.mlp.2", out, merged, dtype)


def _clip(vision: Config, text_hidden: int, dtype: str) -> Iterator[Tensor]:
    hidden = int(vision.get("hidden_size") or 1024)
    inner = int(vision.get("intermediate_size") or 4 * hidden)
    layers = int(vision.get("num_hidden_layers") or vision.get("depth") or 24)
    patch, image = int(vision.get("patch_size") or 14), int(vision.get("image_size") or 336)
    top = "vision_tower.vision_model"
    yield Tensor(f"{top}.embeddings.patch_embedding.weight", dtype, (hidden, 3, patch, patch))
    positions = (image // patch) ** 2
    yield Tensor(f"{top}.embeddings.position_embedding.weight", dtype, (positions, hidden))
    for number in range(layers):
        layer = f"{top}.encoder.layers.{number}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{layer}.self_attn.{part}", hidden, hidden, dtype)
        yield from _linear(f"{layer}.mlp.fc1", inner, hidden, dtype)
        yield from _linear(f"{layer}.mlp.fc2", hidden, inner, dtype)
        yield from _norm(f"{layer}.layer_norm1", hidden, dtype)
        yield from _norm(f"{layer}.layer_norm2", hidden, dtype)
    yield from _norm(f"{top}.post_layernorm", hidden, dtype)
    if str(vision.get("model_type") or "") == "siglip_vision_model" and text_hidden:
        yield Tensor(
            "multi_modal_projector.mm_input_projection_weight", dtype, (hidden, text_hidden)
        )
        return
    yield from _linear("multi_modal_projector.linear_1", text_hidden, hidden, dtype)
    yield from _linear("multi_modal_projector.linear_2", text_hidden, text_hidden, dtype)
