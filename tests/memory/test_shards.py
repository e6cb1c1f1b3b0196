"""How weights are shared out: what holds of every model, and each rule once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.errors import RigError
from rig.memory.headers import Tensor
from rig.memory.quantization import NONE, read_quantization
from rig.memory.shards import (
    Alike,
    Sharing,
    alike,
    indivisible,
    padded_vocabulary,
    require_divisible,
    stage_layers,
    stage_weights,
)

from .makers import LLAMA, llama

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def language(model: Any, sharing: Sharing) -> list[int]:
    """Bytes of the language model on a rank of each stage."""
    stages, _ = stage_weights(model.architecture, model.tensors, model.quantization, sharing)
    return [stage.language for stage in stages]


shapes = st.fixed_dictionaries(
    {
        "num_attention_heads": st.sampled_from([8, 16, 32]),
        "num_key_value_heads": st.sampled_from([1, 2, 4, 8]),
        "num_hidden_layers": st.integers(1, 7),
        "vocab_size": st.integers(1, 5000),
        "tie_word_embeddings": st.booleans(),
        "hidden_size": st.just(512),
        "intermediate_size": st.sampled_from([1024, 2048]),
        "quantization_config": st.sampled_from([None, GPTQ, AWQ, FP8]),
    }
)


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_ranks_hold_the_whole_and_less_with_more_ranks(shape: dict[str, Any]) -> None:
    model = llama(**shape)
    held = [language(model, Sharing(t))[0] for t in (1, 2, 4, 8)]
    assert held == sorted(held, reverse=True)
    for ranks, each in zip((1, 2, 4, 8), held, strict=True):
        assert ranks * each >= held[0]
    # Only norms, repeated KV heads and the like are held more than once.
    assert held[1] >= held[0] / 2


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(1, 7))
def test_stages_hold_the_whole(shape: dict[str, Any], stages: int) -> None:
    model = llama(**shape)
    stages = min(stages, shape["num_hidden_layers"])
    whole = sum(language(model, Sharing(1)))
    parts = language(model, Sharing(1, stages))
    copy = 512 * padded_vocabulary(model.architecture) * 2
    assert sum(parts) - whole == (copy if stages > 1 and shape["tie_word_embeddings"] else 0)


@pytest.mark.parametrize(
    ("count", "stages", "sizes"),
    [(32, 4, [8, 8, 8, 8]), (30, 4, [7, 8, 8, 7]), (29, 4, [7, 7, 8, 7]), (5, 3, [2, 2, 1])],
)
def test_stages_as_vllm_deals_them_out(count: int, stages: int, sizes: list[int]) -> None:
    found = stage_layers(count, stages)
    assert [len(layers) for layers in found] == sizes
    assert [n for layers in found for n in layers] == list(range(count))


@pytest.mark.parametrize(
    ("name", "shape", "two", "four"),
    [
        ("model.layers.0.self_attn.q_proj.weight", (4096, 4096), 1 / 2, 1 / 4),
        ("model.layers.0.self_attn.q_proj.bias", (4096,), 1 / 2, 1 / 4),
        ("model.layers.0.self_attn.k_proj.weight", (256, 4096), 1 / 2, 1 / 2),
        ("model.layers.0.self_attn.o_proj.weight", (4096, 4096), 1 / 2, 1 / 4),
        ("model.layers.0.self_attn.o_proj.bias", (4096,), 1, 1),
        ("model.layers.0.mlp.gate.weight", (8, 4096), 1, 1),
        ("model.layers.0.mlp.experts.3.down_proj.weight", (4096, 512), 1 / 2, 1 / 4),
        ("model.layers.0.input_layernorm.weight", (4096,), 1, 1),
        ("model.layers.0.self_attn.qkv_proj.weight", (4608, 4096), 1 / 2, (8 + 2) / 36),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", (576, 4096), 1, 1),
        ("model.layers.7.mlp.up_proj.weight", (4096, 4096), 0, 0),  # a draft's layer
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (64,), 0, 0),
    ],
)
def test_each_rule(name: str, shape: tuple[int, ...], two: float, four: float) -> None:
    model = llama(num_key_value_heads=2, num_hidden_layers=7).architecture
    tensor = Tensor(name, "BF16", shape)
    for ranks, part in ((1, 1), (2, two), (4, four)):
        [stage], _ = stage_weights(model, [tensor], NONE, Sharing(ranks))
        expected = tensor.nbytes * (part if ranks > 1 or two else 0)
        assert stage.language == pytest.approx(expected, abs=1)


def test_weights_take_the_engines_type_but_scales_do_not() -> None:
    model = llama().architecture
    name = "model.layers.0.mlp.up_proj"
    plain = Tensor(f"{name}.weight", "F32", (8, 8))
    scale = Tensor(f"{name}.weight_scale", "F32", (8, 1))
    [stage], _ = stage_weights(model, [plain, scale], NONE, Sharing(1, dtype="BF16"))
    assert stage.decoder == 8 * 8 * 2 + 8 * 4


@pytest.mark.parametrize(
    ("quantization", "part", "shape", "kept"),
    [
        (GPTQ, "g_idx", (4096,), 0),
        ({**GPTQ, "desc_act": True}, "g_idx", (4096,), 2),
        (GPTQ, "qzeros", (32, 512), 0),
        ({**GPTQ, "sym": False}, "qzeros", (32, 512), 1),
        (AWQ, "qzeros", (32, 512), 1),
        (FP8, "weight_scale_inv", (32, 32), 64),  # one for each row, in 16 bits
    ],
)
def test_what_stays_of_a_quantised_weight(
    quantization: dict[str, Any], part: str, shape: tuple[int, ...], kept: float
) -> None:
    model = llama().architecture
    dtype = "F32" if part.startswith("weight") else "I32"
    tensor = Tensor(f"model.layers.0.mlp.up_proj.{part}", dtype, shape)
    how = read_quantization({"quantization_config": quantization})
    [stage], _ = stage_weights(model, [tensor], how, Sharing(1))
    assert stage.decoder == tensor.nbytes * kept
    if part.startswith("weight"):
        [stage], _ = stage_weights(model, [tensor], how, Sharing(1, fp8_computes=True))
        assert stage.decoder == tensor.nbytes


@pytest.mark.parametrize(
    ("changes", "ranks", "why"),
    [
        ({}, 3, "attention heads"),
        ({"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 128}, 6, "KV heads"),
        (
            {"num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 1024},
            3,
            "padded tokens",
        ),
        ({"intermediate_size": 29568, "quantization_config": AWQ}, 8, "groups of 128"),
        ({"intermediate_size": 29568}, 8, ""),
        ({"intermediate_size": 1001}, 2, "feed-forward"),
        ({"num_key_value_heads": 2}, 8, ""),
        ({}, 4, ""),
    ],
)
def test_what_does_not_divide(changes: dict[str, Any], ranks: int, why: str) -> None:
    model = llama(**changes)
    said = indivisible(model.architecture, ranks, model.quantization)
    assert why in said
    assert bool(said) == bool(why)
    if why:
        with pytest.raises(RigError, match=why):
            require_divisible(model.architecture, ranks, model.quantization)


def test_experts_whole_or_split() -> None:
    moe = {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "model_type": "mixtral"}
    model = llama(**moe)
    split, whole = (language(model, Sharing(4, experts_whole=whole))[0] for whole in (False, True))
    assert split == whole  # eight experts deal out evenly to four
    odd = llama(**{**moe, "num_local_experts": 6})
    assert language(odd, Sharing(4, experts_whole=True)) > language(odd, Sharing(4))


def test_experts_put_together_weigh_the_same() -> None:
    moe = {"num_local_experts": 16, "num_experts_per_tok": 2, "model_type": "mixtral"}
    model = llama(**moe, num_hidden_layers=3)
    together, each = alike(model.tensors), Alike((tensor, 1) for tensor in model.tensors)
    assert len(together) == len(each) - 3 * 3 * 15
    for stages in (1, 3):
        found = [
            stage_weights(model.architecture, some, NONE, Sharing(4, stages))
            for some in (together, each)
        ]
        assert found[0] == found[1]
