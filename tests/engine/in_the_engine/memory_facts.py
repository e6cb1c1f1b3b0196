# mypy: disable-error-code="import-not-found"
"""What the engine itself makes of models: bytes of each rank's weights, its KV cache.

    python memory_facts.py OUT MODEL ...

Runs with the engine's Python, in one process. A rank of a larger group is built by telling vLLM's
layers that they belong to a group of that size, at that place: no layer communicates while it is
built. Weights are on the meta device, so that sizes cost nothing. KV cache specs, groups and
tokens are the engine's own. Writes a JSON table:
"MODEL TP MODE" -> figures of the first and the last rank.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import traceback
import weakref
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state as ranks
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.offloader.towers.plan import MarkedTowers, plan_streams
from vllm.model_executor.offloader.towers.units import lay_out
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.core import kv_cache_utils as cache
from vllm.v1.kv_cache_interface import KVCacheSpec

try:  # vLLM 0.33 has it in a module of its own
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:
    planning = cache

MEMORY = 2**30
"""Bytes that the cache is planned for."""
SLOTS = 3
BUDGETS = (0, 300_000, 30_000_000)
"""Bytes of a tower that may stay on the card."""


class AtPlace:
    """A group as a larger one sees it: size and rank are others, all else is the real one's."""

    def __init__(self, real: Any, size: int, rank: int) -> None:
        self._real = real
        self.world_size = size
        self.rank_in_group = rank
        self.ranks = list(range(size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def start() -> None:
    """A group of this process alone."""
    args = EngineArgs(model=sys.argv[2], skip_tokenizer_init=True, load_format="dummy")
    with set_current_vllm_config(args.create_engine_config(UsageContext.OPENAI_API_SERVER)):
        ranks.init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            distributed_init_method=f"file://{sys.argv[1]}.store",
            backend="gloo",
        )
        ranks.initialize_model_parallel(1, 1)
    if ranks._EP is None:  # it is made for models with experts only
        ranks._EP = ranks._TP


def settings(folder: str, size: int, data: bool) -> Any:
    """The engine's configuration for that many ranks."""
    name = Path(folder).name
    args = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        tensor_parallel_size=size,
        # What the CPU's attention takes: other sizes make sliding layers differ from full ones.
        block_size=16 if name.startswith("deepseek") else 32,
        max_model_len=4096,
        enforce_eager=True,
        dtype="float16" if name.endswith("gptq") else "bfloat16",
        mm_encoder_tp_mode="data" if data else "weights",
        distributed_executor_backend="mp" if size > 1 else None,
    )
    return args.create_engine_config(UsageContext.OPENAI_API_SERVER)


def measure(config: Any, size: int, rank: int) -> dict[str, Any]:
    """Figures of one rank."""
    config.compilation_config.static_forward_context.clear()
    real = {name: getattr(ranks, name) for name in ("_TP", "_EP")}
    for name, group in real.items():
        setattr(ranks, name, AtPlace(group, size, rank))
    try:
        base = config.cache_config.block_size
        dtype = set_default_torch_dtype(config.model_config.dtype)
        device = "cpu" if config.model_config.is_multimodal_model else "meta"
        with set_current_vllm_config(config), dtype, torch.device(device):
            model = initialize_model(config)
        current_platform.update_block_size_for_backend(config)
        found = {"block_size": base, **weights(model), **cache_of(config)}
        if device == "cpu":
            found["streams"] = [streams(model, budget) for budget in BUDGETS]
        return found
    finally:
        for name, group in real.items():
            setattr(ranks, name, group)


def weights(model: torch.nn.Module) -> dict[str, int]:
    """Bytes of all parameters, shared ones once, and those of towers."""
    sizes = {id(p): p.numel() * p.element_size() for p in model.parameters()}
    names = ("visual", "vision_tower", "multi_modal_projector")
    towers = {
        id(p): p.numel() * p.element_size()
        for name in names
        if isinstance(tower := getattr(model, name, None), torch.nn.Module)
        for p in tower.parameters()
    }
    return {"weights": sum(sizes.values()), "tower": sum(towers.values())}


def streams(model: torch.nn.Module, budget: int) -> dict[str, int]:
    """What the streamer would do with the model's vision tower."""
    [plan] = plan_streams([MarkedTowers(weakref.ref(model), ["visual"])], SLOTS, budget, all_plain)
    packed = [lay_out(p.data for p in own.values())[1] for own in plan.parameters]
    fetched = lay_out(p.data for _, own in plan.on_demand for p in own.values())[1]
    streamed = sum(p.nbytes for own in plan.parameters for p in own.values())
    return {
        "budget": budget,
        "units": len(plan.units),
        "streamed": streamed,
        "on_demand": plan.on_demand_bytes,
        "resident": plan.tower_bytes - streamed - plan.on_demand_bytes,
        "ring": SLOTS * max(packed, default=0),
        "host": sum(packed) + fetched,
    }


def all_plain(_: torch.Tensor) -> bool:
    """No weight is a subclass of a tensor here."""
    return True


def cache_of(config: Any) -> dict[str, Any]:
    """The page of each layer, the groups, and the tokens that `MEMORY` holds."""
    specs: dict[str, KVCacheSpec] = {}
    for name, layer in config.compilation_config.static_forward_context.items():
        if isinstance(layer, AttentionLayerBase):
            spec = layer.get_kv_cache_spec(config)
            if spec is not None:
                specs[name] = spec
    pages = sorted([s.block_size, s.page_size_bytes] for s in specs.values())
    config.cache_config.kv_cache_layout = "LBNHC"
    groups = planning.get_kv_cache_groups(config, copy.deepcopy(specs))
    planned = planning.get_kv_cache_config_from_groups(config, groups, MEMORY)
    tokens, _ = cache.get_kv_cache_capacity(config, planned)
    return {
        "pages": pages,
        "num_groups": len(groups),
        "num_blocks": planned.num_blocks,
        "tokens": tokens,
        "in_flight": config.max_in_flight_tokens,
        "prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "mamba_mode": str(config.cache_config.mamba_cache_mode),
        "state_dtype": str(config.cache_config.mamba_ssm_cache_dtype),
    }


def main() -> None:
    start()
    found: dict[str, Any] = {}
    for folder in sys.argv[2:]:
        name = Path(folder).name
        for size in (1, 2, 4):
            for data in (False, True) if name.startswith("qwen3_vl") else (False,):
                key = f"{name} {size} {'data' if data else 'weights'}"
                try:
                    config = settings(folder, size, data)
                    found[key] = [measure(config, size, rank) for rank in sorted({0, size - 1})]
                except Exception:
                    found[key] = {"error": traceback.format_exc()}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
