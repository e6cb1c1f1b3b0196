"""What was asked for without the line that proves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.engine_log import read_engine_log

_LINES = (Path(__file__).parent / "logs" / "two-cards-streamed.txt").read_text().splitlines()


def _without(*words: str) -> list[str]:
    return [line for line in _LINES if not any(word in line for word in words)]


def _names(lines: list[str], **environment: str) -> list[str]:
    return [no_op.name for no_op in read_engine_log(lines, environment=environment).no_ops]


def test_what_is_proven_is_no_no_op() -> None:
    assert _names(_LINES) == []


@pytest.mark.parametrize(
    ("proof", "name"),
    [
        ("Tower streaming", "--offload-towers"),
        ("Total CPU offloaded", "--cpu-offload-gb"),
        ("bound to CPUs", "--numa-bind"),
    ],
)
def test_a_flag_without_its_proof_is_named(proof: str, name: str) -> None:
    assert _names(_without(proof)) == [name]
    # While it loads, the line may be still to come.
    early = [line for line in _without(proof) if "KV cache size" not in line]
    assert _names([li for li in early if "startup" not in li and "Starting" not in li]) == []


def test_a_tower_that_stays_on_the_card_is_named_with_the_engines_words() -> None:
    stays = "Tower streaming: visual: nothing streams, all 80.0 MiB stay on the device: it fits"
    [no_op] = read_engine_log([*_without("Tower streaming"), stays]).no_ops
    assert no_op.name == "--offload-towers"
    assert "nothing streams" in no_op.why


def test_offloading_nothing_is_named() -> None:
    nothing = "INFO 01-01 00:00:00 [uva.py:1] Total CPU offloaded parameters: 0.0"
    assert _names([*_without("Total CPU offloaded"), nothing]) == ["--cpu-offload-gb"]


def test_custom_all_reduce_that_was_decided_on_and_refused_is_named_with_the_reason() -> None:
    refused = "WARNING Custom allreduce is disabled because it's not supported on more than two"
    lines = [*_without("all-reduce backends"), refused + " PCIe-only GPUs."]
    [no_op] = read_engine_log(lines, wanted=["custom all-reduce"]).no_ops
    assert no_op.name == "custom all-reduce"
    assert "PCIe-only" in no_op.why
    assert _names(lines) == []  # vLLM tries it by default: nobody has asked
    [silent] = read_engine_log(_without("all-reduce backends"), wanted=["custom all-reduce"]).no_ops
    assert "no group lists CUSTOM" in silent.why
    assert read_engine_log(_LINES, wanted=["custom all-reduce"]).no_ops == ()


@pytest.mark.parametrize(
    "variable", ["VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "VLLM_CUSTOM_ALLREDUCE_PCIE"]
)
def test_what_the_environment_asks_for(variable: str) -> None:
    assert _names(_LINES, **{variable: "1"}) == [variable]


def test_the_opt_in_for_more_than_two_cards() -> None:
    line = (
        "WARNING 01-01 00:00:00 [pcie_opt_in.py:9] Custom allreduce is enabled on 4 PCIe-only GPUs "
        "by VLLM_CUSTOM_ALLREDUCE_PCIE (opt-in): /v.json says that it is proven on these cards."
    )
    facts = read_engine_log([*_LINES, line], environment={"VLLM_CUSTOM_ALLREDUCE_PCIE": "/v.json"})
    assert facts.no_ops == ()
    assert facts.all_reduce.opt_in is not None
