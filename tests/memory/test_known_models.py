"""The weights of well-known models, counted from their configs, against their published sizes."""

from __future__ import annotations

from typing import Any

import pytest

from rig.memory.model import model_of

# Name, billions of weights as its makers say, and its published shape.
KNOWN: list[tuple[str, float, dict[str, Any]]] = [
    (
        "Qwen3-30B-A3B",
        30.53,
        {
            "model_type": "qwen3_moe",
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "vocab_size": 151936,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
    (
        "Mixtral-8x7B",
        46.7,
        {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
        },
    ),
    (
        "Qwen2.5-7B",
        7.616,
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
        },
    ),
    (
        "gemma-3-27b",
        27.43,
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 5376,
                "intermediate_size": 21504,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "num_hidden_layers": 62,
                "sliding_window": 1024,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 1152,
                "image_size": 896,
                "intermediate_size": 4304,
                "num_hidden_layers": 27,
                "patch_size": 14,
                "num_attention_heads": 16,
            },
            "mm_tokens_per_image": 256,
        },
    ),
    (
        "Qwen2.5-VL-7B",
        8.292,
        {
            "model_type": "qwen2_5_vl",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "vision_config": {
                "model_type": "qwen2_5_vl",
                "depth": 32,
                "hidden_size": 1280,
                "intermediate_size": 3420,
                "out_hidden_size": 3584,
                "num_heads": 16,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "in_chans": 3,
            },
        },
    ),
    (
        "gpt-oss-20b",
        20.91,
        {
            "model_type": "gpt_oss",
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 24,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 201088,
            "sliding_window": 128,
        },
    ),
    (
        "Phi-3-mini",
        3.821,
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 32064,
        },
    ),
    (
        "DeepSeek-V2-Lite",
        15.71,
        {
            "model_type": "deepseek_v2",
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_hidden_layers": 27,
            "vocab_size": 102400,
        },
    ),
    (
        "LLaVA-1.5-7B",
        7.06,
        {
            "model_type": "llava",
            "text_config": {
                "model_type": "llama",
                "vocab_size": 32064,
                "max_position_embeddings": 4096,
            },
            "vision_config": {
                "model_type": "clip_vision_model",
                "hidden_size": 1024,
                "image_size": 336,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "patch_size": 14,
                "num_attention_heads": 16,
            },
        },
    ),
    (
        "Qwen3-Next-80B",
        79.7,
        {
            "model_type": "qwen3_next",
            "hidden_size": 2048,
            "intermediate_size": 5120,
            "moe_intermediate_size": 512,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "shared_expert_intermediate_size": 512,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "vocab_size": 151936,
            "full_attention_interval": 4,
            "linear_num_value_heads": 32,
            "linear_num_key_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
        },
    ),
]


@pytest.mark.parametrize(("name", "billions", "config"), KNOWN, ids=[row[0] for row in KNOWN])
def test_weights_of_known_models(name: str, billions: float, config: dict[str, Any]) -> None:
    model = model_of({"max_position_embeddings": 32768, **config}, None, source=name)
    counted = sum(tensor.numel for tensor in model.tensors)
    assert counted / 1e9 == pytest.approx(billions, rel=0.002)
