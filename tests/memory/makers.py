"""Configs and weight files for the tests of the plan."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from rig.box.rig_file import CardsTable, DefaultsTable, LinkTable, Rig
from rig.memory.headers import BITS, Tensor
from rig.memory.model import Model, model_of

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}

# The published shape of Qwen3-VL-8B: docs/streaming.md has its figures, from another source.
QWEN3_VL_8B: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 36,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": 4096,
        "num_position_embeddings": 2304,
        "in_channels": 3,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}


def llama(**changes: Any) -> Model:
    """A Llama of 8 billion weights, with changes."""
    return model_of({**LLAMA, **changes}, None, source="a config")


def rig(count: int = 4, vram_gib: float = 24, users: str = "one", **defaults: Any) -> Rig:
    """A box of equal cards."""
    return Rig(
        name=f"{count}x",
        cards=CardsTable(count=count, name="a card", vram_gib=vram_gib, compute_capability=(8, 6)),
        link=LinkTable(generation=4, width=8),
        defaults=DefaultsTable.model_validate({"users": users, **defaults}),
    )


def write_weights(path: Path, tensors: list[Tensor]) -> None:
    """Write a safetensors file: a true header, and zeros."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        size = tensor.numel * BITS[tensor.dtype] // 8
        table[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [end, end + size],
        }
        end += size
    head = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(end))


TINY = {
    **LLAMA,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 100,
}


def write_model(folder: Path) -> None:
    """Write a tiny model into a folder: config and one weight file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY), "utf-8")
    write_weights(folder / "model.safetensors", list(model_of(TINY, None, source="x").tensors))
