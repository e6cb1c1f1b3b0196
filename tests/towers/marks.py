"""How models mark the towers of the families, and what an offloader must find in them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn
from vllm.model_executor.offloader.towers.plan import MarkedTowers
from vllm.model_executor.offloader.towers.units import Unit


@dataclass(frozen=True)
class Tower:
    """How a model marks a tower, and what must be found in it.

    Attributes:
        marks: The names that each mark gives. Where what a family builds has no such part, it is
            the part itself.
        lists: The lists whose members are blocks. All other units are single layers.
        outsized: Single layers that are no units of the ring, being larger than the blocks, where
            a ring has so many slots or more: each slot would have their size, which costs more
            than it saves.
    """

    marks: Sequence[Sequence[str]]
    lists: Sequence[str]
    outsized: Mapping[str, int] = field(default_factory=dict)


def one_mark(
    *names: str, blocks: Sequence[str], outsized: Mapping[str, int] | None = None
) -> Tower:
    return Tower([names], blocks, outsized=outsized or {})


PROJECTED = ("vision_tower", "multi_modal_projector")
VISUAL = one_mark("visual", blocks=["visual.blocks"])
QWEN2_VISUAL = one_mark("visual", blocks=["visual.blocks"], outsized={"visual.merger.mlp.0": 3})
TOWERS = {
    "gemma3": one_mark(*PROJECTED, blocks=["vision_tower.vision_model.encoder.layers"]),
    "gemma4": one_mark("vision_tower", "embed_vision", blocks=["vision_tower.encoder.layers"]),
    "glm4_1v": VISUAL,
    "internvl": one_mark("vision_model", "mlp1", blocks=["vision_model.encoder.layers"]),
    "kimi_vl": one_mark(
        *PROJECTED,
        blocks=["vision_tower.encoder.blocks"],
        outsized={"multi_modal_projector.linear_1": 3},
    ),
    "llama4": one_mark(
        "vision_model", "multi_modal_projector", blocks=["vision_model.model.layers"]
    ),
    "llava_clip": one_mark(*PROJECTED, blocks=["vision_tower.vision_model.encoder.layers"]),
    "mimo_audio": one_mark(
        "audio_encoder",
        blocks=[
            "audio_encoder.audio_tokenizer.encoder.layers",
            "audio_encoder.input_local_transformer.layers",
        ],
        outsized={"audio_encoder.projection.mlp.0": 2, "audio_encoder.projection.mlp.2": 2},
    ),
    "minicpmv": one_mark(
        "vpm", "resampler", blocks=["vpm.encoder.layers"], outsized={"resampler.attn": 3}
    ),
    "minicpmv4_6": one_mark(
        "vpm",
        "vit_merger",
        "merger",
        blocks=["vpm.encoder.layers"],
        outsized={"vit_merger.linear_1": 2, "merger.mlp.0.linear_1": 3},
    ),
    "mistral3": one_mark(*PROJECTED, blocks=["vision_tower.transformer.layers"]),
    "phi4mm": Tower(
        [["vision_encoder"], ["embed_tokens_extend"]],
        ["vision_encoder.img_processor.encoder.layers", "embed_tokens_extend.encoder.encoders"],
    ),
    "pixtral": one_mark(
        "vision_encoder",
        "pre_mm_projector_norm",
        "patch_merger",
        "vision_language_adapter",
        blocks=["vision_encoder.transformer.layers"],
    ),
    "qwen2_5_vl": QWEN2_VISUAL,
    "qwen2_audio": one_mark("audio_tower", "multi_modal_projector", blocks=["audio_tower.layers"]),
    "qwen2_vl": QWEN2_VISUAL,
    "qwen3_omni_audio": one_mark("audio_tower", blocks=["audio_tower.layers"]),
    "qwen3_omni_vision": one_mark("visual", blocks=["visual.blocks", "visual.merger_list"]),
    "qwen3_vl": one_mark("visual", blocks=["visual.blocks", "visual.deepstack_merger_list"]),
    "qwen3_vl_moe": VISUAL,
    "ultravox": one_mark(
        "audio_tower",
        "multi_modal_projector",
        blocks=["audio_tower.layers", "multi_modal_projector.layers"],
    ),
    "whisper": one_mark("model.encoder", blocks=["model.encoder.layers"]),
}


class Model(nn.Module):
    """A model around a tower, by its name."""


def model_of(name: str, tower: nn.Module) -> nn.Module:
    """The model whose marks name parts of a tower, or the tower itself."""
    first = TOWERS[name].marks[0][0].partition(".")[0]
    if hasattr(tower, first):
        return tower
    model = Model()
    model.add_module(first, tower)
    return model


def marked_by(name: str, model: nn.Module) -> list[MarkedTowers]:
    return [MarkedTowers(weakref.ref(model), list(names)) for names in TOWERS[name].marks]


def outsized_of(name: str, num_slots: int) -> set[str]:
    """Names of the units that stay beside rings of that many slots, whatever the budget."""
    return {unit for unit, slots in TOWERS[name].outsized.items() if num_slots >= slots}


def units_of(name: str, model: nn.Module) -> list[Unit]:
    return [unit for marked in marked_by(name, model) for unit in marked.units()]
