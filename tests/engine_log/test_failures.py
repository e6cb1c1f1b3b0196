"""The table of known failures: each row by a line of its own, and which of several counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.engine_log import find_failure, known_failure
from rig.engine_log.known import KNOWN

_LOGS = Path(__file__).parent / "logs"
_RANK = "(Worker_TP0 pid=7) ERROR 11-12 09:00:00 [multiproc_executor.py:9] "

_LINES = {
    "no such argument": "vllm: error: unrecognized arguments: --ofload-towers",
    "not whole": "SystemExit: The vLLM 0.33.0 in /e/vllm is not what vllm-rig built:",
    "gated": "huggingface_hub.errors.GatedRepoError: 403 Client Error.",
    "no such model": "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
    "not in the local cache": "LocalEntryNotFoundError: Cannot find an appropriate snapshot",
    "is incomplete": "OSError: Can't load tokenizer for '/m'.",
    "damaged": "safetensors_rust.SafetensorError: Error while deserializing header",
    "does not know the model": "Model architectures ['NewNet'] are not supported",
    "more than the model was made for": "User-specified max_model_len (99999) is greater "
    "than the derived max_model_len (max_position_embeddings=4096)",
    "14 attention heads": "ValueError: Total number of attention heads (14) must be divisible by "
    "tensor parallel size (4).",
    "a port is taken": "OSError: [Errno 98] Address already in use",
    "too old": "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
    "does not fit": "Error 804: forward compatibility was attempted on non supported HW",
    "kernel module": "NVMLError: Driver/library version mismatch",
    "of this generation": "CUDA error: no kernel image is available for execution on the device",
    "dropped off the bus": "CUDA error: uncorrectable ECC error encountered",
    "no card is visible": "RuntimeError: No CUDA GPUs are available",
    "exclusive mode": "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "has only 19.80 of 23.60 GiB": "ValueError: Free memory on device cuda:1 (19.80/23.60 GiB) on "
    "startup is less than desired GPU memory utilization (0.9, 21.24 GiB).",
    "no memory for the KV cache": "ValueError: No available memory for the cache blocks. Try",
    "needs 5.20 GiB": "ValueError: To serve at least one request with the model's max seq len "
    "(65536), (5.20 GiB KV cache is needed, which is larger than the available KV cache memory "
    "(3.10 GiB). Based on the available memory, the estimated maximum model length is 39056. Try",
    "exclude each other": "Failed: Cuda error csrc/custom_all_reduce.cuh:455 'invalid argument'",
    "ran out of memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "/dev/shm": "box:1:1 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x",
    "because the box ran out": "(raylet) node running low on memory, 3 workers were killed",
    "not be pinned": "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried",
    "a disk is full": "OSError: [Errno 28] No space left on device",
    "open files": "OSError: [Errno 24] Too many open files",
    "Ray refused": "ray.exceptions.AuthenticationError: InvalidAuthToken: bad token",
    "Ray is not installed": "ModuleNotFoundError: No module named 'ray'",
    "within its time": "ValueError: Cannot provide a placement group requiring 4 GPUs (...) within",
    "head did not come up": "RuntimeError: Timed out waiting for file /t/gcs_server_port_2f17",
    "NCCL failed": "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)",
    "until the time was up": "TimeoutError: RPC call to execute_model timed out.",
    "a kernel failed": "CUDA error: an illegal memory access was encountered",
    "rank 1, 3 died": "RayWorkerProc rank=[1, 3] died unexpectedly, shutting down executor.",
    "VllmWorker-1 died": "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting",
    "killed from outside": "A worker died or was killed while executing a task by an unexpected",
    "it waits": "Waiting for creating a placement group of specs for 10 seconds. specs=[]",
    "while NCCL sets up": "vLLM is using nccl==2.29.3",
    "busy for 60 s": "No available shared memory broadcast block found in 60 seconds. This",
    "did not start": "RuntimeError: Engine core initialization failed. See root cause above.",
    "core died": "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
}


@pytest.mark.parametrize("words", _LINES)
def test_each_known_failure_is_told_with_what_to_do(words: str) -> None:
    for line in (_LINES[words], _RANK + _LINES[words]):
        found = known_failure(["an earlier line", line])
        assert found is not None
        cause, next_step = found
        assert words in cause
        assert next_step
        assert "{" not in cause + next_step.replace('{"', "")


def test_every_row_of_the_table_has_a_line_here() -> None:
    for known in KNOWN:
        assert any(known.sign.search(line) for line in _LINES.values()), known.cause


def test_a_healthy_start_has_no_failure() -> None:
    for log in sorted(_LOGS.glob("*.txt")):
        assert known_failure(log.read_text().splitlines()) is None


def test_a_warning_ends_nothing() -> None:
    line = "WARNING 11-12 09:00:00 [system_utils.py:2] fd limit errors: Too many open files."
    assert known_failure([line]) is None


def test_words_of_a_user_are_no_failure() -> None:
    assert known_failure(["Received request x: prompt: 'CUDA out of memory. Why?'"]) is None


def test_a_sign_of_a_hang_counts_only_at_the_end() -> None:
    sign = "(EngineCore pid=1) INFO 05-15 16:03:26 [shm_broadcast.py:6] No available shared "
    sign += "memory broadcast block found in 60 seconds."
    found = find_failure(["loading", sign])
    assert found is not None and not found.certain
    assert find_failure([sign, *["went on"] * 5]) is None


def test_the_root_cause_counts_not_what_follows() -> None:
    lines = [
        "RuntimeError: Engine core initialization failed.",
        "RayWorkerProc rank=[0] died unexpectedly, shutting down executor.",
        "RuntimeError: NCCL error: unhandled cuda error",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    ]
    found = known_failure(lines)
    assert found is not None and found[0] == "a card ran out of memory"


def test_an_unknown_error_is_told_as_it_is() -> None:
    found = known_failure(
        [
            _RANK + "AssertionError: Not enough nodes to bind 2 workers",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ]
    )
    assert found is not None and found[0] == "AssertionError: Not enough nodes to bind 2 workers"


@pytest.mark.parametrize(
    ("frames", "words", "step"),
    [
        (["profile_run", "embed_multimodal"], "image or video", "--limit-mm-per-prompt"),
        (["determine_available_memory", "profile_run"], "largest batch", "max-num-batched"),
        (["load_model"], "weights were loaded", "quantisation"),
        (["capture_model"], "graphs were captured", "--enforce-eager"),
        (["execute_model"], "request was served", "headroom"),
    ],
)
def test_when_memory_ran_out_says_what_to_do(frames: list[str], words: str, step: str) -> None:
    traceback = [f'{_RANK}  File "/e/runner.py", line 9, in {frame}' for frame in frames]
    found = known_failure([*traceback, _RANK + "torch.OutOfMemoryError: CUDA out of memory. Tried"])
    assert found is not None
    assert words in found[0]
    assert step in found[1]
