"""What a person may ask of a plan, and what vLLM takes where nothing is asked."""

from __future__ import annotations

from dataclasses import dataclass

from rig.memory.activations import BATCHED_TOKENS, SEQUENCES
from rig.memory.tower import SLOTS

UTILIZATION = 0.92
"""vLLM 0.33.0's `--gpu-memory-utilization`."""


@dataclass(frozen=True)
class PlanOptions:
    """As the flags of `vllm serve`; None is for the plan to choose.

    Args:
        dtype: as safetensors names it, e.g. BF16; None is vLLM's "auto".
        offload_towers: None streams the towers only where nothing fits otherwise.
        kv_cache_memory: bytes for the KV cache of each rank, whatever else is there.
        max_pixels: of one picture, as given to its processor.
        images, videos: items in one prompt; no pictures and no videos load no tower.
        reserve: bytes to leave free on each card besides, for displays and other programs.
    """

    tensor: int | None = None
    pipeline: int | None = None
    max_model_len: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float | None = None
    kv_cache_memory: int | None = None
    max_num_batched_tokens: int = BATCHED_TOKENS
    max_num_seqs: int = SEQUENCES
    block_size: int = 16
    enforce_eager: bool = False
    prefix_caching: bool = True
    expert_parallel: bool = False
    encoder_data: bool = False
    offload_towers: bool | None = None
    tower_slots: int = SLOTS
    tower_resident_bytes: int = 0
    images: int | None = None
    videos: int = 0
    max_pixels: int | None = None
    reserve: int = 0

    @property
    def text_only(self) -> bool:
        return self.images == 0 and self.videos == 0
