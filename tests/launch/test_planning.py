"""What a memory plan is told of vLLM's arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig.box.rig_file import DefaultsTable
from rig.errors import RigError
from rig.launch.plan import ServeOptions
from rig.launch.planning import NoPlanError, plan_options, read, size_of, summary
from rig.memory.options import PlanOptions
from rig.memory.plan import plan_memory
from tests.memory import makers

from .rules.row import plan, rig

OPTIONS = ServeOptions(model="m", python=Path("/e/bin/python"), log_folder=Path("/l"))


@pytest.mark.parametrize(
    "line, told",
    [
        ("", {}),
        ("-tp 2 --pipeline_parallel_size=2", {"tensor": 2, "pipeline": 2}),
        ("--max-model-len 8k --max-num-seqs 1K", {"max_model_len": 8000, "max_num_seqs": 1024}),
        ("--max-model-len auto", {"max_model_len": None}),
        ("--gpu-memory-utilization 0.9", {"gpu_memory_utilization": 0.9}),
        ("--gpu-memory-utilization nine", {"gpu_memory_utilization": None}),
        ("--kv-cache-memory-bytes 4G", {"kv_cache_memory": 4 << 30}),
        ("--kv-cache-dtype fp8 --dtype half", {"kv_cache_dtype": "fp8", "dtype": "F16"}),
        ("--offload-towers", {"offload_towers": True}),
        ("--no-offload-towers", {"offload_towers": False}),
        (
            "--no-enable-prefix-caching --enforce-eager",
            {"prefix_caching": False, "enforce_eager": True},
        ),
        (
            "--mm-encoder-tp-mode data --enable-expert-parallel",
            {"encoder_data": True, "expert_parallel": True},
        ),
        ('--limit-mm-per-prompt {"image":3,"video":1}', {"images": 3, "videos": 1}),
        ("--limit-mm-per-prompt.image 0", {"images": 0}),
        ('--limit-mm-per-prompt {"image":{"count":2}}', {"images": 2}),
        ("--mm-processor-kwargs.max_pixels 1048576", {"max_pixels": 1048576}),
    ],
)
def test_arguments_as_a_plan_takes_them(line: str, told: dict[str, Any]) -> None:
    assert plan_options(line.split()) == replace(PlanOptions(), **told)


def test_the_rig_files_context_counts_unless_another_is_asked_for() -> None:
    mine = rig(defaults=DefaultsTable(max_model_len=4096))
    assert plan_options([], mine).max_model_len == 4096
    assert plan_options(["--max-model-len", "100"], mine).max_model_len == 100
    assert plan_options(["--max-model-len", "auto"], mine).max_model_len is None


@pytest.mark.parametrize("text", ["auto", "-1", "0", "x", "1.5.2", None])
def test_what_is_no_size_is_left_to_vllm(text: str | None) -> None:
    assert size_of(text) is None


def test_what_is_not_known_offline_is_no_error_and_a_broken_folder_is_one(tmp_path: Path) -> None:
    with pytest.raises(NoPlanError):
        read(replace(OPTIONS, model="nobody/has-this-model"), offline=True)
    here = replace(OPTIONS, model=str(tmp_path))
    with pytest.raises(RigError) as caught:
        read(here, offline=True)
    assert not isinstance(caught.value, NoPlanError)
    with pytest.raises(NoPlanError):
        read(here, offline=True, only_say=True)
    with pytest.raises(NoPlanError):
        read(replace(here, extra_arguments=("--load-format", "dummy")), offline=False)
    (tmp_path / "model.gguf").touch()
    with pytest.raises(NoPlanError):
        read(here, offline=False)


def test_a_rehearsal_of_a_model_that_is_not_here_is_refused_before_a_start() -> None:
    absent = replace(OPTIONS, model="nobody/has-this-model", rehearse=True)
    with pytest.raises(RigError, match="a rehearsal downloads nothing") as caught:
        read(absent, offline=True)
    assert not isinstance(caught.value, NoPlanError)
    with pytest.raises(NoPlanError, match="nothing is kept of nobody/has-this-model"):
        read(absent, offline=True, only_say=True)


def test_the_summary_says_what_streaming_wins_and_costs() -> None:
    streams = plan(2, 2, idle=1).model_copy(
        update={
            "kv_tokens": 5000,
            "tower_streams": True,
            "kv_tokens_without_streaming": 3000,
            "encode_ms_added": 12.34,
        }
    )
    said = "\n".join(summary(streams))
    assert "2 x 2 ranks, 1 cards idle" in said
    assert "2,000 tokens more of KV cache, 12.3 ms more" in said
    assert "host memory" in "\n".join(summary(streams, rehearse=True))


@pytest.mark.parametrize(
    ("name", "bytes_of_a_weight"),
    [("auto", 2), ("half", 2), ("float16", 2), ("bfloat16", 2), ("float", 4), ("float32", 4)],
)
def test_every_type_that_vllm_takes_can_be_planned(name: str, bytes_of_a_weight: int) -> None:
    options = replace(plan_options(["--dtype", name]), enforce_eager=True)
    made = plan_memory(makers.llama(), makers.rig(4), None, options)
    half = plan_memory(makers.llama(), makers.rig(4), None, PlanOptions(enforce_eager=True))
    assert made.ranks[0].weights * 2 == half.ranks[0].weights * bytes_of_a_weight
