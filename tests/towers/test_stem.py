"""Each class that is said to be clean computes the same with all of its weights on the host.

`test_streaming.py` runs every family so, streamed; the catcher (`rig anchors`) runs the models of
vLLM's registry so, at rest. Here is proven that no class escapes both, and that one that is not
clean would be seen.

Needs vLLM with the patches, which the tools' own Python has not:
    PYTHONPATH=CHECKOUT PYTHON-OF-AN-ENGINE -P -m pytest tests/towers/test_stem.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

import torch
from vllm.model_executor.layers.tower_device import TowerDevice
from vllm.model_executor.offloader.towers.stem import CLEAN_TOWERS, class_path, is_clean

from tests.towers.families import FAMILIES
from tests.towers.family import (
    build_tower,
    engine_context,
    equal,
    outputs,
    standin,
    standin_accelerator,
    standin_runtime,
    to_device,
)
from tests.towers.marks import marked_by, model_of
from tests.towers.test_streaming import marked_offloader, streams_on

RECORD = Path(__file__).resolve().parents[2] / "docs" / "device-anchors.json"


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    with engine_context():
        yield


def classes_of(name: str) -> set[str]:
    """The classes of the towers that a family's model marks."""
    model = model_of(name, build_tower(FAMILIES[name], torch.float32))
    return {
        class_path(tower) for mark in marked_by(name, model) for tower in mark.towers().values()
    }


def caught_clean() -> set[str]:
    """The classes of which the catcher met every weight, and no anchor in any model that has one.

    `docs/device-anchors.json` is its record, which `tests/engine/test_anchors.py` compares with a
    run.
    """
    met: set[str] = set()
    spoilt: set[str] = set()
    for row in json.loads(RECORD.read_text("utf-8"))["rows"]:
        if row["verdict"] in ("clean", "anchor"):
            all_met = row["verdict"] == "clean" and row["unmet"] == 0
            (met if all_met else spoilt).update(row["towers"])
    return met - spoilt


def test_each_clean_class_is_run_by_a_family_or_the_catcher() -> None:
    run = {path for name in FAMILIES for path in classes_of(name)}
    assert set(CLEAN_TOWERS) <= run | caught_clean()
    assert len(set(CLEAN_TOWERS) & run) >= 30
    assert "vllm.model_executor.models.qwen3_vl:Qwen3_VisionTransformer" in CLEAN_TOWERS


def encode_all_at_rest(name: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Encode with each weight of the towers on the host; who has asked for a weight's device.

    Raises:
        AssertionError: the result is not the resident tower's.
        RuntimeError: the device refused.
    """
    family = FAMILIES[name]
    kinds = standin_runtime()
    inputs = family.inputs(torch.float32)
    expected = {
        case: outputs(family, build_tower(family, torch.float32), inputs[case]) for case in inputs
    }
    with standin_accelerator() as device:
        streams_on(monkeypatch, device, kinds.StandInTowerRuntime)
        tower = build_tower(family, torch.float32, device)
        model = model_of(name, tower)
        runtime = kinds.StandInTowerRuntime()
        marked = [tower for mark in marked_by(name, model) for tower in mark.towers().values()]
        for parameter in {id(p): p for part in marked for p in part.parameters()}.values():
            runtime.point(parameter, parameter.data.cpu())
        for part in marked:
            part.tower_offload_stem = True
            assert is_clean(part)
        marked_offloader(name, model, num_slots=1, num_residents=0).post_init()
        standin().RestTensor.device_reads.clear()
        for case in inputs:
            found = outputs(family, tower, to_device(inputs[case], device))
            assert all(output.device == device for output in found), case
            assert equal([output.cpu() for output in found], expected[case]), case
            for part in marked:
                assert {type(p) for p in part.parameters()} == {kinds.RestingWeight}
        return {file for file, _ in standin().RestTensor.device_reads}


def test_a_tower_that_takes_its_device_from_a_weight_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `CLEAN_TOWERS` rests on: here is one that is not clean, as it was before its patch."""
    assert encode_all_at_rest("qwen3_vl", monkeypatch) <= {"tower_device.py"}
    monkeypatch.setattr(TowerDevice, "resolve", lambda self, anchor: anchor.device)
    with pytest.raises(RuntimeError) as caught:
        encode_all_at_rest("qwen3_vl", monkeypatch)
    # Frames that hold weights can keep them from going back to rest: a second error, after it.
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, standin().StandInError):
        error = error.__context__
    assert error is not None
