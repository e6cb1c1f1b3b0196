# mypy: disable-error-code="import-not-found"
"""A real engine of two ranks, and the bytes that each of them loaded.

    python loaded_bytes.py MODEL FOLDER

Runs with the engine's Python. Each rank writes FOLDER/rank-N.json before its weights are brought
into the layout of the CPU's kernels (which drops some of them); then FOLDER/cache.json says what
the engine made of its KV cache.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}

import torch
from vllm import LLM
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.model_executor.model_loader import base_loader
from vllm.v1.core import kv_cache_utils

FOLDER = Path(sys.argv[2])
process = base_loader.process_weights_after_loading
capacity = kv_cache_utils.get_kv_cache_capacity


def note_weights(model: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    """Write what was loaded, then go on."""
    found = {"weights": sum(p.nbytes for p in model.parameters()), "shared": shared_name()}
    rank = get_tensor_model_parallel_rank()
    (FOLDER / f"rank-{rank}.json").write_text(json.dumps(found), "utf-8")
    process(model, *args, **kwargs)


def shared_name() -> str:
    """How the names begin of what these ranks share in /dev/shm; vLLM leaves it there."""
    return os.environ["VLLM_DIST_IDENT"]


def note_cache(config: Any, planned: Any) -> tuple[int, float]:
    """Write what the engine prints, then go on."""
    tokens, times = capacity(config, planned)
    found = {
        "tokens": tokens,
        "num_blocks": planned.num_blocks,
        "block_size": config.cache_config.block_size,
        "in_flight": config.max_in_flight_tokens,
    }
    (FOLDER / "cache.json").write_text(json.dumps(found), "utf-8")
    return tokens, times


# Not in `main`: processes that are spawned import this file, too.
base_loader.process_weights_after_loading = note_weights
kv_cache_utils.get_kv_cache_capacity = note_cache


def main() -> None:
    llm = LLM(
        sys.argv[1],
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=512,
        limit_mm_per_prompt={"video": 0},
    )
    llm.llm_engine.engine_core.shutdown()
    name = json.loads((FOLDER / "rank-0.json").read_text("utf-8"))["shared"]
    for left in Path("/dev/shm").glob(f"{name}-*"):
        left.unlink()


if __name__ == "__main__":
    main()
