# mypy: disable-error-code="import-not-found"
"""Small models of many architectures, made with transformers: random weights, real names.

    python tiny_architectures.py FOLDER

Runs with the engine's Python. Quantised ones get the tensors that such a checkpoint has, made
from the weights of a plain one: shapes and types are right, the values mean nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

COMMON: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1003,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}

PLAIN: dict[str, dict[str, Any]] = {
    # Fewer KV heads than ranks: each rank has one, twice.
    "llama": {"num_key_value_heads": 2, "head_dim": 32},
    "qwen2": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": 512, "head_dim": 32},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": {**MOE, "head_dim": 64, "decoder_sparse_step": 1, "mlp_only_layers": [0]},
    "gemma2": {"head_dim": 32, "sliding_window": 256, "num_hidden_layers": 6},
    "gemma3_text": {"head_dim": 64, "sliding_window": 256, "num_hidden_layers": 13},
    "deepseek_v2": {
        **MOE,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 64,
        "q_lora_rank": 96,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "num_key_value_heads": 8,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
    },
    "phi3": {"num_key_value_heads": 2, "sliding_window": None},
    "qwen3_next": {
        **MOE,
        "num_hidden_layers": 8,
        "num_experts": 8,
        "head_dim": 64,
        "shared_expert_intermediate_size": 128,
        "linear_num_value_heads": 8,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
    },
    "granitemoehybrid": {
        "num_hidden_layers": 6,
        "layer_types": ["mamba", "mamba", "attention"] * 2,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 128,
        "mamba_n_heads": 16,
        "mamba_d_head": 32,
        "mamba_n_groups": 1,
        "mamba_d_state": 32,
        "mamba_expand": 2,
    },
    "jamba": {
        "num_hidden_layers": 8,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "num_experts": 4,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "use_mamba_kernels": False,
    },
    "falcon": {"multi_query": True, "new_decoder_architecture": False, "alibi": False},
    "gpt_oss": {"num_local_experts": 8, "head_dim": 32, "sliding_window": 128},
}

QUANTISED: dict[str, dict[str, Any]] = {
    "llama-awq": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True},
    "llama-gptq": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 64,
        "sym": True,
        "desc_act": False,
    },
    "llama-w4a16": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "strategy": "group",
                    "group_size": 64,
                    "symmetric": True,
                },
            }
        },
    },
    "llama-w8a8": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 8,
                    "type": "int",
                    "strategy": "channel",
                    "symmetric": True,
                    "dynamic": False,
                },
                "input_activations": {
                    "num_bits": 8,
                    "type": "int",
                    "strategy": "token",
                    "symmetric": True,
                    "dynamic": True,
                },
            }
        },
    },
    "llama-fp8": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [64, 64],
        "modules_to_not_convert": ["lm_head"],
    },
}
QUANTISED_SHAPE = {"num_key_value_heads": 4, "hidden_size": 512, "intermediate_size": 1024}


def make_plain(folder: Path, kind: str, changes: dict[str, Any]) -> None:
    """Write one model of random weights."""
    config = AutoConfig.for_model(kind, **{**COMMON, **changes})
    config.dtype = torch.bfloat16
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder, safe_serialization=True)


def make_quantised(folder: Path, quantization: dict[str, Any]) -> None:
    """Write a Llama whose linears have a quantised checkpoint's tensors."""
    make_plain(folder, "llama", {**QUANTISED_SHAPE, "head_dim": 64})
    file = folder / "model.safetensors"
    found = {}
    for name, weight in load_file(file).items():
        module, _, part = name.rpartition(".")
        if part == "weight" and weight.dim() == 2 and "proj" in module:
            for key, tensor in _packed(weight, quantization).items():
                found[f"{module}.{key}"] = tensor
        else:
            found[name] = weight
    save_file(found, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def _packed(weight: torch.Tensor, how: dict[str, Any]) -> dict[str, torch.Tensor]:
    out, into = weight.shape
    half, ints = torch.bfloat16, torch.int32
    if how["quant_method"] == "awq":
        return {
            "qweight": torch.zeros(into, out // 8, dtype=ints),
            "qzeros": torch.zeros(into // 64, out // 8, dtype=ints),
            "scales": torch.ones(into // 64, out, dtype=half),
        }
    if how["quant_method"] == "gptq":
        return {
            "qweight": torch.zeros(into // 8, out, dtype=ints),
            "qzeros": torch.zeros(into // 64, out // 8, dtype=ints),
            "scales": torch.ones(into // 64, out, dtype=half),
            "g_idx": torch.zeros(into, dtype=ints),
        }
    if how["quant_method"] == "fp8":
        return {
            "weight": torch.zeros(out, into, dtype=torch.float8_e4m3fn),
            "weight_scale_inv": torch.ones(-(-out // 64), -(-into // 64)),
        }
    if how["format"] == "pack-quantized":
        return {
            "weight_packed": torch.zeros(out, into // 8, dtype=ints),
            "weight_scale": torch.ones(out, into // 64, dtype=half),
            "weight_shape": torch.tensor([out, into]),
        }
    return {
        "weight": torch.zeros(out, into, dtype=torch.int8),
        "weight_scale": torch.ones(out, 1, dtype=half),
    }


def main() -> None:
    top = Path(sys.argv[1])
    for name, changes in PLAIN.items():
        make_plain(top / name, name, changes)
    for name, quantization in QUANTISED.items():
        make_quantised(top / name, quantization)


if __name__ == "__main__":
    main()
