"""What becomes of a tower: figures known from elsewhere, and what holds of every tower."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.layout import layout_of_this_checkout
from rig.memory.model import model_of
from rig.memory.shards import Sharing, TowerTensor, stage_weights
from rig.memory.tower import CLEAN, choose_residents, choose_slot_bytes, streamed_tower
from rig.memory.tower_units import find_units

from .makers import QWEN3_VL_8B

MIB = 2**20
MODEL = model_of(QWEN3_VL_8B, None, source="a config")


def tower(ranks: int = 1, *, data: bool = False) -> list[TowerTensor]:
    sharing = Sharing(ranks, encoder_data=data)
    return stage_weights(MODEL.architecture, MODEL.tensors, MODEL.quantization, sharing)[1]


def test_qwen3_vl_8b_is_as_the_documentation_has_it() -> None:
    """docs/streaming.md: 35 units of 1090.9 MiB, a ring of 3 x 40.5, 8.5 on demand."""
    units, _ = find_units(tower())
    assert len(units) == 35
    plan = streamed_tower(tower(), MODEL.architecture.vision)
    assert round(plan.streamed / MIB, 1) == 1090.9
    assert round(plan.ring / 3 / MIB, 1) == 40.5
    assert round(plan.on_demand / MIB, 1) == 8.5
    assert plan.saved / MIB == pytest.approx(977.9, abs=0.06)
    assert plan.resident == 0


@pytest.mark.parametrize(
    ("ranks", "data", "freed"), [(1, False, 978), (4, False, 251), (4, True, 978)]
)
def test_what_it_frees_for_each_card(ranks: int, data: bool, freed: int) -> None:
    plan = streamed_tower(tower(ranks, data=data), MODEL.architecture.vision)
    assert round(plan.saved / MIB) == freed
    assert plan.shared == (data or ranks == 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1200 * MIB), st.integers(1, 6))
def test_nothing_is_lost_and_a_budget_is_kept(budget: int, slots: int) -> None:
    plan = streamed_tower(tower(), MODEL.architecture.vision, slots=slots, budget=budget)
    assert plan.total == plan.resident + plan.streamed + plan.on_demand
    assert plan.host >= plan.streamed + plan.on_demand
    assert plan.host - plan.streamed - plan.on_demand < 256 * len(tower())
    if plan.streamed:
        assert plan.resident <= budget
        assert plan.ring < plan.streamed


def test_a_tower_not_known_to_be_clean_keeps_its_stem() -> None:
    plan = streamed_tower(tower(), {**(MODEL.architecture.vision or {}), "model_type": "another"})
    assert plan.on_demand == 0
    assert round(plan.resident / MIB, 1) == 8.5


def test_a_tower_too_small_for_its_ring_stays() -> None:
    one = [TowerTensor(f"visual.blocks.{n}.fc.weight", (8, 8), 128, False) for n in range(3)]
    plan = streamed_tower(one, {"model_type": "qwen3_vl"})
    assert (plan.resident, plan.ring, plan.streamed) == (384, 0, 0)


@given(st.lists(st.integers(1, 1000), max_size=20), st.integers(1, 4), st.integers(0, 5000))
def test_slots_and_residents(sizes: list[int], slots: int, budget: int) -> None:
    best = choose_slot_bytes(sizes, slots)
    gain = sum(size for size in sizes if size <= best) - slots * best
    for other in sizes:
        assert sum(size for size in sizes if size <= other) - slots * other <= max(gain, 0)
    assert sum(sizes[unit] for unit in choose_residents(sizes, budget)) <= budget


# For each type of vision config taken to be clean: its class, as the streamer names it.
CLASSES = {
    "qwen2_vl": "qwen2_vl:Qwen2VisionTransformer",
    "qwen2_5_vl": "qwen2_5_vl:Qwen2_5_VisionTransformer",
    "qwen2_5_vl_vision": "qwen2_5_vl:Qwen2_5_VisionTransformer",
    "qwen2_5_omni_vision_encoder": "qwen2_5_vl:Qwen2_5_VisionTransformer",
    "qwen3_vl": "qwen3_vl:Qwen3_VisionTransformer",
    "qwen3_vl_vision": "qwen3_vl:Qwen3_VisionTransformer",
    "qwen3_vl_moe": "qwen3_vl:Qwen3_VisionTransformer",
    "qwen3_vl_moe_vision": "qwen3_vl:Qwen3_VisionTransformer",
    "qwen3_omni_moe_vision_encoder": "qwen3_omni_moe_thinker:Qwen3Omni_VisionTransformer",
    "clip_vision_model": "clip:CLIPVisionModel",
    "siglip_vision_model": "siglip:SiglipVisionModel",
    "pixtral": "pixtral:PixtralHFVisionModel",
    "intern_vit_6b": "intern_vit:InternVisionModel",
    "internvl_vision": "interns1_vit:InternS1VisionModel",
    "glm4v_vision": "glm4_1v:Glm4vVisionTransformer",
    "glm4v_moe_vision": "glm4_1v:Glm4vVisionTransformer",
    "idefics3_vision": "idefics2_vision_model:Idefics2VisionTransformer",
    "idefics2_vision": "idefics2_vision_model:Idefics2VisionTransformer",
    "llama4_vision_model": "mllama4:Llama4VisionModel",
}


def test_clean_towers_are_the_streamers() -> None:
    layout = layout_of_this_checkout()
    [patch] = layout.patches.glob("0450-*.patch")
    named = set(re.findall(r"\{_MODELS\}\.([\w.]+:\w+)", patch.read_text("utf-8")))
    assert set(CLASSES) == CLEAN
    assert set(CLASSES.values()) <= named
