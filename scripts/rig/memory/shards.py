"""Which part of each weight lies on a rank: vLLM's rules for tensor and pipeline parallelism.

The rules go by the names that Hugging Face checkpoints use, and follow the layers of vLLM 0.33.0
that those are loaded into: column parallel (the output is split), row parallel (the input is),
QKV (KV heads are repeated where there are fewer than ranks), vocabulary (padded to 64 rows,
then split), experts (the intermediate size is split, or the experts are), all else whole on every
rank. All tensor parallel ranks of a stage hold equally much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rig.errors import RigError
from rig.memory.architecture import Architecture
from rig.memory.headers import BITS, FLOATS, Tensor
from rig.memory.layers import State
from rig.memory.names import (
    HEADS,
    KEPT_F32,
    LAYER,
    NOT_LOADED,
    ORDERS,
    RULES,
    SCALES,
    TOWER,
    Rule,
    leaf_and_part,
)
from rig.memory.quantization import Quantization

VOCABULARY_STEP = 64
"""Rows. vLLM's DEFAULT_VOCAB_PADDING_SIZE."""


class TowerTensor(NamedTuple):
    """A weight of a tower: its bytes on one rank, and whether ranks share it out."""

    name: str
    shape: tuple[int, ...]
    nbytes: int
    split: bool


@dataclass(frozen=True)
class StageWeights:
    """What each tensor parallel rank of one pipeline stage holds of the language model."""

    layers: range
    embedding: int
    head: int
    decoder: int  # layers, and norms outside of them

    @property
    def language(self) -> int:
        return self.embedding + self.head + self.decoder


@dataclass(frozen=True)
class Sharing:
    """How ranks share a model.

    Args:
        dtype: what the engine computes in, as safetensors names it.
        experts_whole: experts are dealt out whole (`--enable-expert-parallel`).
        encoder_data: each rank holds the whole tower (`--mm-encoder-tp-mode data`).
        as_loaded: count weights before the engine has repacked quantised ones.
        fp8_computes: the card computes in FP8 (compute capability 8.9 on), so that scales of
            blocks stay as they are; else Marlin gives each row a scale of its own.
    """

    tensor: int
    pipeline: int = 1
    dtype: str = "BF16"
    experts_whole: bool = False
    encoder_data: bool = False
    as_loaded: bool = False
    fp8_computes: bool = False


def stage_layers(count: int, pipeline: int) -> list[range]:
    """The layers of each pipeline stage, as `get_pp_indices` of vLLM deals them out."""
    sizes = [count // pipeline] * pipeline
    for extra in range(count % pipeline):
        sizes[-2 - extra] += 1
    starts = [sum(sizes[:stage]) for stage in range(pipeline)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def require_divisible(model: Architecture, tensor: int, quantization: Quantization) -> None:
    """Refuse a tensor parallel size that vLLM refuses.

    Raises:
        RigError: it divides the heads, the KV heads or the padded vocabulary badly.
    """
    if why := indivisible(model, tensor, quantization):
        raise RigError(
            f"{model.name} cannot be split over {tensor} cards: {why}",
            next_step="use another --tensor-parallel-size, or pipeline stages",
        )


def indivisible(model: Architecture, tensor: int, quantization: Quantization) -> str:
    """Why vLLM would refuse that tensor parallel size; empty if it would not."""
    if model.heads % tensor:
        return f"{tensor} does not divide its {model.heads} attention heads"
    if model.kv_heads % tensor and tensor % model.kv_heads:
        return f"its {model.kv_heads} KV heads can be neither dealt out to {tensor} nor repeated"
    if padded_vocabulary(model) % tensor:
        return f"{tensor} does not divide its {padded_vocabulary(model)} padded tokens"
    step = max(quantization.group, quantization.block[0] if quantization.block else 1, 1)
    for size in [model.experts.intermediate] if model.experts else [model.intermediate]:
        if size % tensor:
            return f"{tensor} does not divide the {size} values inside its feed-forward layers"
        if size % step == 0 and size // tensor % step:
            return f"{size} values inside its feed-forward layers have scales in groups of {step}"
    states = [s.heads for s in model.layers if isinstance(s, State) and s.heads % tensor]
    return f"{tensor} does not divide {states[0]} recurrent heads" if states else ""


def padded_vocabulary(model: Architecture) -> int:
    """Rows of its embedding and head in vLLM, over all ranks."""
    return -(-model.vocabulary // VOCABULARY_STEP) * VOCABULARY_STEP


class Alike(list[tuple[Tensor, int]]):
    """Weights that differ in the number of their expert only: one of them, and how many."""


def alike(tensors: Iterable[Tensor]) -> Alike:
    """Put the weights of all experts of a layer together: there may be many thousands."""
    found: dict[tuple[str, str, tuple[int, ...]], list[Tensor]] = {}
    for tensor in tensors:
        before, experts, after = tensor.name.partition(".experts.")
        number, dot, rest = after.partition(".")
        same = f"{before}.experts.{rest}" if experts and dot and number.isdigit() else tensor.name
        found.setdefault((same, tensor.dtype, tensor.shape), []).append(tensor)
    return Alike((some[0], len(some)) for some in found.values())


def stage_weights(
    model: Architecture,
    tensors: Iterable[Tensor] | Alike,
    quantization: Quantization,
    sharing: Sharing,
) -> tuple[list[StageWeights], list[TowerTensor]]:
    """Count the bytes of one rank of each stage, and list the weights of the towers."""
    stages = stage_layers(len(model.layers), sharing.pipeline)
    of_layer = {n: stage for stage, layers in enumerate(stages) for n in layers}
    decoder = [0] * len(stages)
    embedding = head = outside = 0
    towers = []
    count = _Counter(model, quantization, sharing)
    for tensor, times in tensors if isinstance(tensors, Alike) else alike(tensors):
        if NOT_LOADED.search(tensor.name):
            continue
        if TOWER.match(tensor.name):
            towers.append(count.of_tower(tensor))
            continue
        nbytes, leaf = count.of_language(tensor)
        nbytes *= times
        if (found := LAYER.search(tensor.name)) is not None:
            if (stage := of_layer.get(int(found[1]))) is not None:  # else a draft's layer
                decoder[stage] += nbytes
        elif leaf in HEADS:
            head += 0 if model.tied else nbytes
        elif RULES.get(leaf) == "vocabulary":
            embedding += nbytes
        else:
            outside += nbytes
    decoder[-1] += outside
    last = len(stages) - 1
    own_head = head or embedding
    return [
        StageWeights(
            layers=layers,
            embedding=embedding if stage == 0 else 0,
            # A tied head is the embedding; the last of several stages has a copy of its own.
            head=0 if stage != last or (not head and last == 0) else own_head,
            decoder=decoder[stage],
        )
        for stage, layers in enumerate(stages)
    ], towers


class _Counter:
    """Counts bytes of weights on a rank."""

    def __init__(self, model: Architecture, quantization: Quantization, sharing: Sharing) -> None:
        self.model = model
        self.quantization = quantization
        self.sharing = sharing

    def of_tower(self, tensor: Tensor) -> TowerTensor:
        leaf, part = leaf_and_part(tensor.name)
        rule = RULES.get(leaf, "whole")
        alone = self.sharing.tensor == 1 or self.sharing.encoder_data
        plain = len(tensor.shape) < 3 and rule != "vocabulary"
        ways = 1 if alone or not plain or not self._splits(rule, part, tensor) else 0
        values = tensor.numel if ways else -(-tensor.numel // self.sharing.tensor)
        return TowerTensor(tensor.name, tensor.shape, self._bytes(tensor, leaf, values), not ways)

    def of_language(self, tensor: Tensor) -> tuple[int, str]:
        leaf, part = leaf_and_part(tensor.name)
        if part in ORDERS and not self.quantization.act_order:
            return 0, leaf  # no kernel asks for the order of inputs if it is the usual one
        values = self._values(tensor, leaf, part)
        if not self.sharing.as_loaded:
            values = self._repacked(tensor, leaf, part, values)
        return self._bytes(tensor, leaf, values), leaf

    def _bytes(self, tensor: Tensor, leaf: str, values: int) -> int:
        bits = BITS[tensor.dtype]
        scale = "scale" in tensor.name.rpartition(".")[2] and not tensor.name.endswith("scales")
        if leaf in KEPT_F32:
            bits = 32
        elif tensor.dtype in FLOATS and not scale:
            bits = BITS[self.sharing.dtype]
        return -(-values * bits // 8)

    def _values(self, tensor: Tensor, leaf: str, part: str) -> int:
        model, ranks = self.model, self.sharing.tensor
        rule = RULES.get(leaf, "whole")
        if rule == "vocabulary" and part == "weight" and len(tensor.shape) == 2:
            return padded_vocabulary(model) // ranks * tensor.shape[1]
        if self.sharing.experts_whole and model.experts and ".experts." in tensor.name:
            return tensor.numel * -(-model.experts.count // ranks) // model.experts.count
        if leaf in ("in_proj", "conv1d", "norm") and (share := self._mamba(tensor, leaf)):
            return share
        if ranks == 1 or not self._splits(rule, part, tensor):
            return tensor.numel
        if rule == "kv":
            return tensor.numel * max(1, model.kv_heads // ranks) // model.kv_heads
        if rule == "qkv":
            local = model.heads // ranks + 2 * max(1, model.kv_heads // ranks)
            return tensor.numel * local // (model.heads + 2 * model.kv_heads)
        return -(-tensor.numel // ranks)

    def _mamba(self, tensor: Tensor, leaf: str) -> int:
        """Values of a rank where groups of Mamba 2 are repeated for each rank; 0 if it is none."""
        layer = self._layer(tensor)
        if layer is None or layer.kind != "mamba2" or not _in_mixer(tensor.name):
            return 0
        ranks = self.sharing.tensor
        if leaf == "norm":
            return -(-tensor.numel // ranks)
        groups = layer.groups if layer.groups % ranks == 0 else ranks
        kept = 2 * groups * layer.state
        rows = layer.inner + kept
        if leaf == "in_proj":
            rows += layer.inner + layer.heads
        return rows // ranks * (tensor.numel // tensor.shape[0])

    def _layer(self, tensor: Tensor) -> State | None:
        found = LAYER.search(tensor.name)
        if found is None or int(found[1]) >= len(self.model.layers):
            return None
        layer = self.model.layers[int(found[1])]
        return layer if isinstance(layer, State) else None

    def _splits(self, rule: Rule, part: str, tensor: Tensor) -> bool:
        if rule == "whole" or tensor.numel == 1 or part in ("weight_shape", "weight_global_scale"):
            return False
        if rule == "row":
            if part == "bias" or part.endswith("_bias"):
                return False
            if part in SCALES:
                return self._split_along_input(part, tensor)
            return True
        return part not in ORDERS

    def _split_along_input(self, part: str, tensor: Tensor) -> bool:
        """Whether scales of a split input are split: there are several along it, in order."""
        if len(tensor.shape) < 2:
            return False
        along = tensor.shape[0] if part in ("scales", "qzeros") else tensor.shape[-1]
        return along > 1 and not self.quantization.act_order

    def _repacked(self, tensor: Tensor, leaf: str, part: str, values: int) -> int:
        """What stays once the engine has brought quantised weights into its kernels' layout."""
        how = self.quantization
        if part in ORDERS:
            return 2 * values  # the order, and the one back
        if part in ("qzeros", "weight_zero_point") and not how.zero_points:
            return 0
        if part == "weight_shape" or part.startswith("input_"):
            return 0
        blocks = how.block and part in ("weight_scale", "weight_scale_inv")
        if how.block and blocks and not self.sharing.fp8_computes:
            # Each row gets a scale of its own, in the engine's type.
            return values * how.block[0] * BITS[self.sharing.dtype] // BITS[tensor.dtype]
        if leaf == "kv_b_proj" and BITS[tensor.dtype] == 8 and part == "weight":
            # MLA keeps a copy in the engine's type beside it, for decoding.
            return values * (1 + BITS[self.sharing.dtype] // 8)
        return values


def _in_mixer(name: str) -> bool:
    return ".mamba." in name or ".mixer." in name
