# mypy: disable-error-code="import-not-found"
"""Two ranks with a tower that streams, for a test that kills one of them.

    python two_ranks.py MODEL

Runs with the engine's Python. Says `ready` once it has answered, and then asks again and again;
ends with status 3 when the engine is dead.
"""

from __future__ import annotations

import os
import sys
import time

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # one NUMA node cannot give each rank its own
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}

from PIL import Image
from vllm import LLM, SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError


def main() -> int:
    llm = LLM(
        sys.argv[1],
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
        mm_encoder_tp_mode="data",
        offload_towers=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=512,
        limit_mm_per_prompt={"video": 0},
        mm_processor_cache_gb=0,
        enable_prefix_caching=False,
    )
    picture = Image.new("RGB", (96, 64), (200, 30, 90))
    parts = [{"type": "image_pil", "image_pil": picture}, {"type": "text", "text": "What?"}]
    sampling = SamplingParams(temperature=0, max_tokens=2)
    try:
        while True:
            llm.chat([{"role": "user", "content": parts}], sampling, use_tqdm=False)
            print("ready", flush=True)
            time.sleep(0.5)
    except EngineDeadError:
        return 3


if __name__ == "__main__":
    sys.exit(main())
