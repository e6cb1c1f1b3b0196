"""The bytes of one layout: each rank's parts, the cache, and what fits into it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rig.memory.activations import (
    CUDA_CONTEXT,
    CUDA_GRAPHS,
    LIBRARIES,
    NCCL,
    decoder_peak,
    encoder_peak,
    images_of,
)
from rig.memory.cards import CardRoom
from rig.memory.kv import KvCache, kv_cache
from rig.memory.model import Model
from rig.memory.options import UTILIZATION, PlanOptions
from rig.memory.result import Layout, RankPlan
from rig.memory.shards import Sharing, StageWeights, stage_weights
from rig.memory.tower import TowerPlan, resident_tower, streamed_tower


@dataclass(frozen=True)
class Counted:
    """A layout with all its bytes.

    Args:
        utilization: the share of a card that vLLM may use.
        num_blocks: of the cache, the smallest over ranks.
        longest: tokens of the longest request that fits; 0 if none does.
        missing: bytes that the fullest card lacks for a request of `max_len`; 0 if it fits.
    """

    layout: Layout
    ranks: tuple[RankPlan, ...]
    stages: tuple[StageWeights, ...]
    cache: KvCache
    tower: TowerPlan
    streams: bool
    utilization: float
    num_blocks: int
    max_len: int
    longest: int
    missing: int
    host_pinned: int

    @property
    def fits(self) -> bool:
        return self.missing == 0

    @property
    def kv_tokens(self) -> int:
        return self.cache.tokens(self.num_blocks, self.max_len) if self.fits else self.longest

    @property
    def kv_bytes_per_token(self) -> float:
        return max(self.cache.bytes_per_token(stage.layers) for stage in self.stages)


def count(
    model: Model,
    layout: Layout,
    rooms: Sequence[CardRoom],
    options: PlanOptions,
    *,
    capability: tuple[int, int],
    stream: bool,
    max_len: int,
) -> Counted:
    """Count everything for one layout. `rooms` has at least as many cards as it has ranks."""
    architecture = model.architecture
    dtype = options.dtype or architecture.dtype
    dtype = "BF16" if dtype == "F32" and options.dtype is None else dtype
    sharing = Sharing(
        layout.tensor,
        layout.pipeline,
        dtype=dtype,
        experts_whole=options.expert_parallel,
        encoder_data=options.encoder_data,
        fp8_computes=capability >= (8, 9),
    )
    stages, tensors = stage_weights(architecture, model.alike, model.quantization, sharing)
    tower = resident_tower(() if options.text_only else tensors)
    if stream and tower.total:
        tower = streamed_tower(
            tensors,
            architecture.vision,
            slots=options.tower_slots,
            budget=options.tower_resident_bytes,
        )
    cache = kv_cache(
        architecture,
        layout.tensor,
        cache_dtype=options.kv_cache_dtype,
        dtype=dtype,
        block_size=options.block_size,
        # Pipeline stages plus one batch ahead, as Model Runner V2 schedules.
        max_in_flight=(layout.pipeline + 1) * options.max_num_batched_tokens,
        prefix_caching=options.prefix_caching,
    )
    used = rooms[: layout.tensor * layout.pipeline]
    utilization = _utilization(used, options)
    ranks = []
    for rank, room in enumerate(used):
        stage = rank // layout.tensor
        ranks.append(
            _rank(
                rank, room, stages[stage], tower, stage, model, layout, options, dtype, utilization
            )
        )
    return _fitted(layout, tuple(ranks), stages, cache, tower, utilization, max_len)


def _fitted(
    layout: Layout,
    ranks: tuple[RankPlan, ...],
    stages: list[StageWeights],
    cache: KvCache,
    tower: TowerPlan,
    utilization: float,
    max_len: int,
) -> Counted:
    blocks, missing = [], 0
    needed = cache.blocks_per_request(max_len)
    for rank in ranks:
        per_block = cache.bytes_per_block(stages[rank.rank // layout.tensor].layers)
        room = max(rank.kv_cache, 0)
        blocks.append(room // per_block if per_block else needed)
        missing = max(missing, needed * per_block - rank.kv_cache)
    num_blocks = min(blocks)
    streams = bool(tower.streamed)
    copies = 1 if tower.shared else layout.tensor
    return Counted(
        layout=layout,
        ranks=ranks,
        stages=tuple(stages),
        cache=cache,
        tower=tower,
        streams=streams,
        utilization=utilization,
        num_blocks=num_blocks,
        max_len=max_len,
        longest=_longest(cache, num_blocks, max_len),
        missing=0 if num_blocks >= needed and missing <= 0 else max(missing, 1),
        host_pinned=tower.host * copies,
    )


def _longest(cache: KvCache, num_blocks: int, max_len: int) -> int:
    """The longest request whose blocks fit, by halving; 0 if not one token does."""
    low, high = 0, max_len
    while low < high:
        middle = (low + high + 1) // 2
        if cache.blocks_per_request(middle) <= num_blocks:
            low = middle
        else:
            high = middle - 1
    return low


def _utilization(rooms: Sequence[CardRoom], options: PlanOptions) -> float:
    """What vLLM may use: as asked, else its own, less where a card is not that free."""
    if options.gpu_memory_utilization is not None:
        return options.gpu_memory_utilization
    most = min((r.free - CUDA_CONTEXT - options.reserve) / r.total for r in rooms)
    return max(0.0, min(UTILIZATION, math.floor(most * 100) / 100))


def _rank(
    rank: int,
    room: CardRoom,
    weights: StageWeights,
    tower: TowerPlan,
    stage: int,
    model: Model,
    layout: Layout,
    options: PlanOptions,
    dtype: str,
    utilization: float,
) -> RankPlan:
    architecture = model.architecture
    # Under Model Runner V2 only the first stage builds the tower.
    mine = tower if stage == 0 else replace(tower, resident=0, ring=0)
    activations = decoder_peak(
        architecture,
        layout.tensor,
        dtype,
        batched_tokens=options.max_num_batched_tokens,
        sequences=options.max_num_seqs,
    )
    vision = architecture.vision
    if vision is not None and not options.text_only and stage == 0:
        encoder = encoder_peak(
            architecture,
            vision,
            images_of(
                vision,
                model.preprocessor,
                options.max_pixels,
                model.config.get("mm_tokens_per_image"),
            ),
            1 if options.encoder_data else layout.tensor,
            dtype,
            batched_tokens=options.max_num_batched_tokens,
        )
        activations = max(activations, encoder)
    graphs = 0 if options.enforce_eager else CUDA_GRAPHS
    many = layout.tensor * layout.pipeline > 1
    libraries = LIBRARIES + (NCCL if many else 0)
    fixed = weights.language + mine.on_card + activations + graphs + libraries
    budget = int(room.total * utilization)
    cache = budget - fixed if options.kv_cache_memory is None else options.kv_cache_memory
    return RankPlan(
        rank=rank,
        card=room.index,
        free=room.free,
        weights=weights.language,
        tower=mine.resident,
        ring=mine.ring,
        activations=activations,
        graphs=graphs,
        context=libraries + CUDA_CONTEXT,
        headroom=room.free - CUDA_CONTEXT - fixed - max(cache, 0),
        kv_cache=cache,
    )
