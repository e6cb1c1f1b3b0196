"""The KV cache: pages, groups and tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.errors import RigError
from rig.memory.kv import kv_cache

from .makers import llama

EVERY = range(1000)


def test_dense() -> None:
    model = llama().architecture
    cache = kv_cache(model, 1)
    assert cache.bytes_per_token(EVERY) == 2 * 32 * 8 * 128 * 2
    assert cache.bytes_per_block(EVERY) == 16 * cache.bytes_per_token(EVERY)
    assert cache.tokens(100, 1600) == 1600
    assert kv_cache(model, 4).bytes_per_token(EVERY) == cache.bytes_per_token(EVERY) / 4
    assert kv_cache(model, 16).bytes_per_token(EVERY) == cache.bytes_per_token(EVERY) / 8
    eighth = kv_cache(model, 1, cache_dtype="fp8")
    assert eighth.bytes_per_token(EVERY) == cache.bytes_per_token(EVERY) / 2
    assert cache.bytes_per_token(range(8)) == cache.bytes_per_token(EVERY) / 4


def test_mla_is_neither_doubled_nor_split() -> None:
    model = llama(kv_lora_rank=512, qk_rope_head_dim=64, model_type="deepseek_v3").architecture
    assert model.mla
    for ranks in (1, 2, 8):
        assert kv_cache(model, ranks).bytes_per_token(EVERY) == 32 * 576 * 2


def test_windows_grow_with_the_full_layers_only() -> None:
    kinds = (["sliding_attention"] * 3 + ["full_attention"]) * 8
    model = llama(layer_types=kinds, sliding_window=1024).architecture
    cache = kv_cache(model, 1, max_in_flight=2048)
    assert len(cache.groups) == 4
    assert cache.bytes_per_token(EVERY) == 2 * 8 * 8 * 128 * 2
    held = -(-(1024 - 1 + 2048) // 16) + 1
    assert cache.blocks_per_request(100_000) == 100_000 // 16 + 3 * held
    everywhere = kv_cache(llama().architecture, 1)
    assert cache.tokens(4000, 32_768) > everywhere.tokens(1000, 32_768)


def test_a_recurrent_layer_costs_a_request_the_same_whatever_its_length() -> None:
    model = llama(
        layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 8,
        linear_num_value_heads=32,
        linear_num_key_heads=16,
        linear_value_head_dim=128,
        linear_key_head_dim=128,
        model_type="qwen3_next",
    ).architecture
    cache = kv_cache(model, 1)
    block = cache.groups[0].page.tokens
    grown = cache.blocks_per_request(100 * block) - cache.blocks_per_request(block)
    assert grown == 99
    without = kv_cache(model, 1, prefix_caching=False)
    assert cache.blocks_per_request(1) - without.blocks_per_request(1) == 3


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 100_000),
    st.integers(1, 5000),
    st.sampled_from([{}, {"sliding_window": 512, "layer_types": ["sliding_attention"] * 32}]),
)
def test_more_blocks_never_hold_fewer_tokens(
    ranks: int, length: int, blocks: int, changes: dict[str, Any]
) -> None:
    cache = kv_cache(llama(**changes).architecture, ranks)
    assert cache.tokens(blocks + 1, length) >= cache.tokens(blocks, length)
    assert cache.blocks_per_request(length + 1) >= cache.blocks_per_request(length)


def test_a_type_that_is_not_known() -> None:
    with pytest.raises(RigError, match="nvfp4"):
        kv_cache(llama().architecture, 1, cache_dtype="nvfp4")
