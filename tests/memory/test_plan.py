"""Plans: the layout, the room on each card, what is implied and advised. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.box.facts import Box, Card, Link
from rig.errors import RigError
from rig.memory.activations import CUDA_CONTEXT, CUDA_GRAPHS, decoder_peak, encoder_peak, images_of
from rig.memory.cards import VISIBLE
from rig.memory.model import Model, model_of
from rig.memory.options import PlanOptions
from rig.memory.plan import plan_memory
from rig.memory.result import MemoryPlan, RankPlan

from .makers import QWEN3_VL_8B, llama, rig

GIB = 2**30
VISION = model_of(QWEN3_VL_8B, None, source="a config")
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
BIG = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
}


def flag(plan: MemoryPlan, name: str) -> str | None:
    """The value of a flag that a plan implies; None if it does not imply it."""
    return next((a.value or "" for a in plan.flags if a.flag == f"--{name}"), None)


def box(free_gib: list[float], width: int = 8) -> Box:
    """A box of 24 GiB cards with that much free."""
    cards = tuple(
        Card(
            index=i,
            bus_id=f"0000:{i:02x}:00.0",
            memory_bytes=24 * GIB,
            memory_free_bytes=int(free * GIB),
            link=Link(width_now=width),
        )
        for i, free in enumerate(free_gib)
    )
    return Box(source="a test", cards=cards)


PARTS = ("weights", "tower", "ring", "activations", "graphs", "context", "headroom")


def adds_up(rank: RankPlan) -> bool:
    """Whether the parts of a card are what was free, the cache that is left included."""
    parts = [int(getattr(rank, part)) for part in PARTS]
    return sum(parts) + max(rank.kv_cache, 0) == rank.free


ODD = {"num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128}
IN_THREE = {
    "num_attention_heads": 24,
    "num_key_value_heads": 24,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 192,
}


@pytest.mark.parametrize(
    ("model", "count", "vram_gib", "users", "layout"),
    [
        (llama(), 1, 24, "one", (1, 1, 0)),
        (llama(), 4, 24, "one", (4, 1, 0)),
        (llama(), 3, 24, "one", (2, 1, 1)),  # 3 does not divide 32 heads
        (llama(), 3, 24, "many", (1, 3, 0)),
        (llama(), 4, 24, "many", (2, 2, 0)),
        (llama(), 2, 24, "many", (2, 1, 0)),
        (llama(**ODD), 8, 24, "one", (4, 2, 0)),
        (llama(**IN_THREE), 3, 24, "one", (3, 1, 0)),
        # Two such cards are too small for it, three stages are not.
        (llama(**BIG, quantization_config=AWQ), 3, 20, "one", (1, 3, 0)),
        (llama(**BIG, quantization_config=AWQ), 3, 32, "one", (2, 1, 1)),
    ],
)
def test_layouts(
    model: Model, count: int, vram_gib: float, users: str, layout: tuple[int, int, int]
) -> None:
    plan = plan_memory(model, rig(count, vram_gib, users), None, PlanOptions(enforce_eager=True))
    assert plan.fits
    assert (plan.layout.tensor, plan.layout.pipeline, plan.layout.idle) == layout
    assert len(plan.ranks) == layout[0] * layout[1]


def test_three_cards_say_what_the_other_layout_gives() -> None:
    plan = plan_memory(llama(), rig(3))
    said = " ".join(a.why for a in plan.advice)
    assert "PP3 holds" in said and "TP2, 1 card idle" in said


def test_four_cards_say_who_is_served_best_by_what() -> None:
    said = " ".join(a.why for a in plan_memory(llama(), rig(4)).advice)
    assert "69 (TP4) against 54" in said and "295 against 473" in said
    assert "4 servers, one for each card" in said


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"tensor": 8}, "need 8 cards, the box has 4"),
        ({"tensor": 2, "pipeline": 3}, "need 6 cards"),
        ({"tensor": 3}, "cannot be split over 3"),
        ({"tensor": 0}, "must be 1 or more"),
        ({"max_model_len": 0}, "must be 1 or more"),
        ({"kv_cache_dtype": "fp3"}, "fp3"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], what: str) -> None:
    with pytest.raises(RigError, match=what):
        plan_memory(llama(), rig(4), None, PlanOptions(**options))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 8]),
    st.sampled_from([8.0, 12.0, 24.0, 32.0]),
    st.booleans(),
    st.sampled_from([None, 1000, 40_000]),
    st.sampled_from([llama(), VISION, llama(**BIG)]),
)
def test_the_parts_of_each_card_add_up(
    count: int, vram: float, stream: bool, length: int | None, model: Model
) -> None:
    options = PlanOptions(offload_towers=stream or None, max_model_len=length)
    plan = plan_memory(model, rig(count, vram), None, options)
    assert all(adds_up(rank) for rank in plan.ranks)
    assert plan.fits == (plan.kv_tokens >= plan.max_model_len)
    if plan.fits:
        assert all(rank.kv_cache > 0 and rank.headroom > 0 for rank in plan.ranks)
    else:
        assert "does not fit" in plan.advice[0].why


def test_more_room_never_holds_fewer_tokens() -> None:
    tokens = [
        plan_memory(llama(), rig(1, vram), None, PlanOptions(max_model_len=2048)).kv_tokens
        for vram in (20, 21, 22, 24, 32, 48)
    ]
    assert tokens == sorted(tokens)


def test_the_context_is_cut_to_what_fits_unless_it_was_asked_for() -> None:
    plan = plan_memory(llama(), rig(1))
    assert plan.fits and plan.max_model_len < 131072
    assert flag(plan, "max-model-len") == str(plan.max_model_len)
    asked = plan_memory(llama(), rig(1), None, PlanOptions(max_model_len=131072))
    assert not asked.fits and flag(asked, "max-model-len") is None
    assert any(a.flag == "--max-model-len" for a in asked.advice)
    longest = int(next(a.value or "0" for a in asked.advice if a.flag == "--max-model-len"))
    assert plan_memory(llama(), rig(1), None, PlanOptions(max_model_len=longest)).fits
    assert not plan_memory(llama(), rig(1), None, PlanOptions(max_model_len=longest + 16)).fits
    meant = plan_memory(llama(), rig(1, 24, max_model_len=8192))
    assert meant.max_model_len == 8192


def test_the_fullest_card_decides() -> None:
    empty = plan_memory(llama(), rig(4), box([23.5] * 4), PlanOptions(max_model_len=2048))
    full = plan_memory(
        llama(), rig(4), box([23.5, 23.5, 15.0, 23.5]), PlanOptions(max_model_len=2048)
    )
    assert full.kv_tokens < empty.kv_tokens
    assert flag(empty, "gpu-memory-utilization") is None
    lowered = float(flag(full, "gpu-memory-utilization") or 1)
    assert lowered * 24 * VISIBLE * GIB <= 15 * GIB - CUDA_CONTEXT
    assert (lowered + 0.01) * 24 * VISIBLE * GIB > 15 * GIB - CUDA_CONTEXT
    assert [rank.card for rank in full.ranks] == [0, 1, 2, 3]


def test_streaming_is_chosen_where_nothing_fits_otherwise() -> None:
    roomy = plan_memory(VISION, rig(1, 32))
    assert not roomy.tower_streams and any(a.flag == "--offload-towers" for a in roomy.advice)
    tight = next(
        plan
        for vram in (20 + n / 4 for n in range(40))
        if (plan := plan_memory(VISION, rig(1, vram))).fits
    )
    assert tight.tower_streams and flag(tight, "offload-towers") == ""
    never = PlanOptions(offload_towers=False)
    assert not plan_memory(VISION, rig(1, 20), None, never).tower_streams


def test_what_streaming_wins_and_costs() -> None:
    """docs/streaming.md: about 7,000 tokens on one card."""
    plan = plan_memory(VISION, rig(1), box([23.5]), PlanOptions(offload_towers=True))
    assert plan.tower_streams and plan.kv_tokens_without_streaming is not None
    assert plan.kv_tokens - plan.kv_tokens_without_streaming == pytest.approx(7000, abs=100)
    assert plan.host_pinned == pytest.approx(1099.4 * 2**20, rel=0.001)
    # What is not in the ring yet, over half of the 25 GB/s of 16 lanes of PCIe 4.
    assert plan.encode_ms_added == pytest.approx((1152.8e6 - 122.7e6) / 12.5e6, rel=0.01)
    narrow = plan_memory(VISION, rig(1), box([23.5], 4), PlanOptions(offload_towers=True))
    assert narrow.encode_ms_added == pytest.approx(2 * (plan.encode_ms_added or 0))


def test_page_locked_memory_counts_each_rank_or_one_copy() -> None:
    split = plan_memory(VISION, rig(4), None, PlanOptions(offload_towers=True))
    whole = plan_memory(VISION, rig(4), None, PlanOptions(offload_towers=True, encoder_data=True))
    one = plan_memory(VISION, rig(1), None, PlanOptions(offload_towers=True))
    assert whole.host_pinned == one.host_pinned
    assert one.host_pinned < split.host_pinned < 1.1 * one.host_pinned


def test_only_the_first_stage_has_the_tower() -> None:
    plan = plan_memory(VISION, rig(4), None, PlanOptions(tensor=2, pipeline=2))
    assert [rank.tower > 0 for rank in plan.ranks] == [True, True, False, False]
    assert flag(plan, "tensor-parallel-size") is None


def test_no_video_and_no_tower_for_text_only() -> None:
    assert flag(plan_memory(VISION, rig(2)), "limit-mm-per-prompt") == '{"video": 0}'
    text = plan_memory(VISION, rig(2), None, PlanOptions(images=0))
    assert all(rank.tower == rank.ring == 0 for rank in text.ranks)
    assert text.kv_tokens > plan_memory(VISION, rig(2)).kv_tokens


def test_a_fixed_cache_is_taken_as_it_is() -> None:
    plan = plan_memory(llama(), rig(1), None, PlanOptions(kv_cache_memory=2 * GIB))
    assert {rank.kv_cache for rank in plan.ranks} == {2 * GIB}
    assert plan.kv_tokens == pytest.approx(2 * GIB / plan.kv_bytes_per_token, rel=0.01)


def test_graphs_are_given_up_with_enforce_eager() -> None:
    with_graphs = plan_memory(llama(), rig(1))
    without = plan_memory(llama(), rig(1), None, PlanOptions(enforce_eager=True))
    gained = without.ranks[0].kv_cache - with_graphs.ranks[0].kv_cache
    assert gained == with_graphs.ranks[0].graphs == CUDA_GRAPHS


def test_activations_grow_with_what_causes_them() -> None:
    model = llama().architecture
    base = decoder_peak(model, 1, "BF16", batched_tokens=8192, sequences=16)
    assert decoder_peak(model, 1, "BF16", batched_tokens=16384, sequences=16) == 2 * base
    assert decoder_peak(model, 2, "BF16", batched_tokens=8192, sequences=16) < base
    assert decoder_peak(model, 1, "BF16", batched_tokens=8192, sequences=1024) > base
    vision = VISION.architecture.vision or {}
    small, large = (
        encoder_peak(VISION.architecture, vision, images_of(vision, None, pixels), 1, "BF16")
        for pixels in (4_000_000, 8_000_000)
    )
    assert small < large
    fixed = images_of({"image_size": 336, "patch_size": 14}, None, None)
    assert (fixed.patches, fixed.tokens) == (576, 576)
    said = images_of(vision, {"size": {"longest_edge": 262144}}, None)
    assert (said.patches, said.tokens) == (1024, 256)
