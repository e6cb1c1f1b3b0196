"""Each tiny tower is one that a comparison bit by bit can rest on.

It runs the same twice, its output depends on every one of its weights and inputs, and a tower
that is resident on the stand-in accelerator computes what the CPU does.

Needs vLLM, which the tools' own Python has not:
    PYTHONPATH=CHECKOUT PYTHON-OF-AN-ENGINE -P -m pytest tests/towers/test_families.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

import torch

from tests.towers.families import FAMILIES
from tests.towers.family import (
    Family,
    build_tower,
    engine_context,
    equal,
    outputs,
    standin_accelerator,
    to_device,
)

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    with engine_context():
        yield


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    family = FAMILIES[request.param]
    if family.why_not:
        pytest.skip(family.why_not)
    return family


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


def test_runs_the_same_twice(family: Family, dtype: torch.dtype) -> None:
    tower, again = (build_tower(family, dtype) for _ in range(2))
    for case, inputs in family.inputs(dtype).items():
        first = outputs(family, tower, inputs)
        for output in first:
            assert output.dtype == dtype, case
            assert output.isfinite().all(), case
            assert output.float().std() > 1e-3, f"{case}: a constant output"
        for other in (tower, again):
            assert equal(first, outputs(family, other, family.inputs(dtype)[case])), case


def test_every_weight_matters(family: Family) -> None:
    """A weight that were not brought to the device, or taken from another block, is seen."""
    tower = build_tower(family, torch.float32)
    inputs = family.inputs(torch.float32)
    expected = {case: outputs(family, tower, inputs[case]) for case in inputs}
    unseen = []
    for name, parameter in tower.named_parameters():
        kept = parameter.clone()
        # Neither a scale nor a shift: what follows could take either out again.
        parameter.copy_(kept.flatten().roll(1).view(kept.shape) * 1.5 + kept.sin())
        changed = (not equal(expected[c], outputs(family, tower, inputs[c])) for c in inputs)
        if not any(changed):
            unseen.append(name)
        parameter.copy_(kept)
    assert not unseen


def test_has_blocks_enough_for_a_ring(family: Family) -> None:
    """Three slots are refilled only where a list has four blocks or more."""
    tower = build_tower(family, torch.float32)
    lists = [m for m in tower.modules() if isinstance(m, torch.nn.ModuleList | torch.nn.Sequential)]
    assert max(len(blocks) for blocks in lists) >= 4


def test_resident_on_the_standin_equals_the_cpu(family: Family, dtype: torch.dtype) -> None:
    tower = build_tower(family, dtype)
    expected = {case: outputs(family, tower, i) for case, i in family.inputs(dtype).items()}
    with standin_accelerator() as device:
        placed = build_tower(family, dtype, device)
        assert {parameter.device for parameter in placed.parameters()} == {device}
        for case, inputs in family.inputs(dtype).items():
            found = outputs(family, placed, to_device(inputs, device))
            assert all(output.device == device for output in found), case
            assert equal([output.cpu() for output in found], expected[case]), case
