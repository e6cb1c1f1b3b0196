"""The engine still says what is looked for: the phrases stand in the pinned trees' own source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.layout import layout_of_this_checkout
from rig.pins import read_pins

# (where, what): parts of the lines that the readers match.
_PHRASES = [
    ("distributed/device_communicators/custom_all_reduce.py", "Custom allreduce is disabled"),
    ("distributed/device_communicators/custom_all_reduce.py", "due to an unsupported world"),
    ("distributed/device_communicators/custom_all_reduce.py", "more than two PCIe-only"),
    ("distributed/device_communicators/custom_all_reduce.py", "lacks GPU P2P capability"),
    ("distributed/device_communicators/custom_all_reduce.py", "missing custom allreduce library"),
    ("distributed/device_communicators/custom_all_reduce.py", "Custom collectives are disabled"),
    ("distributed/device_communicators/cuda_communicator.py", "all-reduce backends (in dispatch"),
    ("distributed/device_communicators/pynccl.py", "vLLM is using nccl=="),
    ("distributed/device_communicators/all_reduce_utils.py", "GPU P2P access cache"),
    ("distributed/device_communicators/shm_broadcast.py", "shared memory broadcast block found in"),
    ("distributed/parallel_state.py", "world_size=%d rank=%d local_rank=%d"),
    ("distributed/parallel_state.py", "is assigned as DP rank %s, PP rank %s"),
    ("model_executor/offloader/base.py", "Offloader set to %s"),
    ("model_executor/offloader/uva.py", "Total CPU offloaded parameters: %s"),
    ("model_executor/offloader/uva.py", "--cpu-offload-gb does nothing"),
    ("model_executor/offloader/uva.py", "--cpu-offload-gb holds nothing"),
    ("model_executor/offloader/prefetch.py", "Total GPU memory saved: {}"),
    ("model_executor/offloader/towers/offloader.py", "Tower streaming: %s"),
    (
        "model_executor/offloader/towers/report.py",
        "{}: {} units, {} streamed per encode; {} units,",
    ),
    ("model_executor/offloader/towers/report.py", "{} resident; ring of {} slots of {}, {}; stem"),
    ("model_executor/offloader/towers/report.py", "{} of host memory in {} buffers,"),
    ("model_executor/offloader/towers/report.py", "{} of device memory saved"),
    ("model_executor/offloader/towers/report.py", "the ring filled at {} GB/s, so an encode's"),
    ("v1/core/kv_cache_utils.py", "%s KV cache size: %s tokens, Maximum concurrency for %s"),
    ("v1/worker/gpu_worker.py", "Available KV cache memory: %s GiB"),
    ("v1/worker/gpu/model_runner.py", "Model loading took %s GiB"),
    ("v1/worker/gpu/model_runner.py", "Graph capturing finished in %.0f secs, took %.2f GiB"),
    ("v1/worker/utils.py", "GiB) on startup is less than desired GPU memory utilization"),
    ("v1/core/*.py", "No available memory for the cache blocks"),
    ("v1/core/*.py", "GiB KV cache is needed, which is larger than the available KV cache memory"),
    ("v1/executor/ray_executor_v2.py", "RayWorkerProc rank=%s died unexpectedly"),
    ("v1/executor/multiproc_executor.py", "Worker proc %s died unexpectedly"),
    ("v1/executor/ray_utils.py", "Waiting for creating a placement group"),
    ("v1/executor/ray_utils.py", "Cannot provide a placement group requiring"),
    ("v1/engine/core.py", "Initializing a V1 LLM engine (v%s) with config"),
    ("v1/engine/core.py", "vllm-rig: %s"),
    ("v1/engine/utils.py", "Engine core initialization failed"),
    ("platforms/cuda.py", "Using %s attention backend out of potential backends"),
    ("platforms/cuda.py", "Detected different devices in the system: %s."),
    ("entrypoints/**/*.py", "non-default args: %s"),
    ("config/cache.py", "kv_cache_size_tokens"),
]


def _texts(file: Path) -> Iterator[str]:
    """Every text in a module, parts joined, what is put into it as "{}"."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else "{}"
                for part in node.values
            )
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


_TREES = [
    layout_of_this_checkout().tree(pin.version) for pin in read_pins(layout_of_this_checkout())
]


@pytest.mark.parametrize("tree", _TREES, ids=lambda tree: tree.name)
def test_each_phrase_stands_in_the_tree(tree: Path) -> None:
    if not (tree / "vllm").is_dir():
        pytest.skip("not applied: make apply")
    missing = []
    for where, phrase in _PHRASES:
        texts = (text for file in sorted((tree / "vllm").glob(where)) for text in _texts(file))
        if not any(phrase in text for text in texts):
            missing.append(f"{where}: {phrase}")
    assert not missing
