"""Streamed towers compute what resident ones do, bit for bit, and rest on the host in between.

They are streamed as the engine does it: marked, filled, and handed over by `post_init`. The slots
of the ring can be read only while they may be: see `Guarded`.

Needs vLLM with the patches, which the tools' own Python has not:
    PYTHONPATH=CHECKOUT PYTHON-OF-AN-ENGINE -P -m pytest tests/towers/test_streaming.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

import torch
from torch import nn
from vllm.model_executor.models.voxtral_realtime import VoxtralRealtimeGeneration
from vllm.model_executor.offloader.base import NoopOffloader
from vllm.model_executor.offloader.towers import offloader as towers
from vllm.model_executor.offloader.towers.plan import (
    is_linear,
)
from vllm.model_executor.offloader.towers.runtime import CpuTowerRuntime
from vllm.model_executor.offloader.towers.stem import is_clean
from vllm.model_executor.offloader.towers.units import Unit, find_units, module_bytes

from tests.towers.families import FAMILIES
from tests.towers.family import (
    Family,
    build_tower,
    engine_context,
    equal,
    fill,
    outputs,
    standin,
    standin_accelerator,
    standin_runtime,
    to_device,
)
from tests.towers.marks import TOWERS, marked_by, model_of, outsized_of, units_of

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    with engine_context():
        yield


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


def test_every_family_is_here() -> None:
    assert set(TOWERS) == set(FAMILIES)
    assert not [name for name, family in FAMILIES.items() if family.why_not]


class Guarded:
    """A runtime whose slots hold 0xFF but for the time from a wait to the release after it.

    So whoever reads a weight of a unit that does not compute, or computes before the copy was
    waited for, gets numbers that are none, even where the right ones are in the slot already.
    """

    def __init__(self, runtime: Any, reveals: bool = True) -> None:
        self._runtime = runtime
        self._hidden: dict[int, torch.Tensor] = {}
        self._reveals = reveals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def copy(self, slot: int, source: torch.Tensor) -> None:
        self._runtime.copy(slot, source)
        self._hide(slot)

    def wait_ready(self, slot: int) -> None:
        self._runtime.wait_ready(slot)
        hidden = self._hidden.pop(slot)  # it must have been copied, and must not be in use
        if self._reveals:
            self._runtime.slot(slot).copy_(hidden)

    def release(self, slot: int) -> None:
        self._runtime.release(slot)
        self._hide(slot)

    def _hide(self, slot: int) -> None:
        held = self._runtime.slot(slot)
        self._hidden[slot] = held.clone()
        held.fill_(0xFF)


def streams_on(patch: pytest.MonkeyPatch, device: torch.device, make: Callable[[], Any]) -> None:
    """Let offloaders compute on a device, by the runtimes that `make` makes."""
    patch.setattr(towers, "compute_device", lambda: device)
    patch.setattr(towers, "make_runtime", lambda device, timed=False: make())


def on_cpu(patch: pytest.MonkeyPatch, reveals: bool = True) -> None:
    device = torch.device("cpu")
    streams_on(patch, device, lambda: Guarded(CpuTowerRuntime(device), reveals))


def marked_offloader(
    name: str, model: nn.Module, num_slots: int, num_residents: int
) -> towers.TowerOffloader:
    """An offloader that knows the towers, with room for so many of the largest that may stream.

    If there is any, there is room for what would be fetched on demand as well: it comes first.
    """
    stay = outsized_of(name, num_slots)
    units = units_of(name, model)
    largest = max(module_bytes(unit.module) for unit in units if unit.name not in stay)
    budget = num_residents * largest
    if num_residents:
        streamable = {unit.name for unit in units} - stay
        budget += sum(p.nbytes for p in outside_of(clean_towers(name, model), units, streamable))
    offloader = towers.TowerOffloader(NoopOffloader(), num_slots, budget)
    for names in TOWERS[name].marks:
        offloader.offload_tower(model, names)
    return offloader


def clean_towers(name: str, model: nn.Module) -> list[nn.Module]:
    """The towers of which the stem streams too."""
    marked = [tower for mark in marked_by(name, model) for tower in mark.towers().values()]
    return [tower for tower in marked if is_clean(tower)]


def outside_of(
    towers: Sequence[nn.Module], units: Sequence[Unit], names: set[str]
) -> list[nn.Parameter]:
    """The parameters of towers that are in none of the units of those names."""
    inside = {id(p) for unit in units if unit.name in names for p in unit.module.parameters()}
    found = {id(p): p for tower in towers for p in tower.parameters()}
    return [parameter for key, parameter in found.items() if key not in inside]


def streaming(offloader: towers.TowerOffloader) -> list[Unit]:
    return [unit for streamer in offloader.streamers for unit in streamer.units]


def passes(cases: Sequence[str]) -> list[Sequence[str]]:
    """All cases one after the other, three times, in changing order."""
    return [cases, cases[::-1], [*cases[1:], *cases[:1]]]


@cache
def resident(name: str, dtype: torch.dtype, place: str) -> dict[str, list[torch.Tensor]]:
    """What the resident tower computes, by case."""
    family = FAMILIES[name]
    accelerator: AbstractContextManager[Any] = nullcontext()
    if place != "cpu":
        accelerator = standin_accelerator()
    with accelerator as device:
        tower = build_tower(family, dtype, device)
        return {
            case: [
                output.cpu()
                for output in outputs(family, tower, to_device(inputs, device or "cpu"))
            ]
            for case, inputs in family.inputs(dtype).items()
        }


# The slots of a ring, and the units that fit the budget.
RINGS = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


def test_units_are_the_blocks_and_single_layers(family: Family) -> None:
    model = model_of(family.name, build_tower(family, torch.float32))
    units = units_of(family.name, model)
    blocks = {
        f"{path}.{key}"
        for path in TOWERS[family.name].lists
        for key, _ in model.get_submodule(path).named_children()
    }
    assert blocks <= {unit.name for unit in units}
    for unit in units:
        assert unit.name in blocks or is_linear(unit.module), unit.name
    # Of the rest, most streams.
    whole = sum(module_bytes(t) for m in marked_by(family.name, model) for t in m.towers().values())
    assert sum(module_bytes(unit.module) for unit in units) >= whole / 2


@pytest.mark.parametrize(("num_slots", "num_residents"), RINGS)
def test_streamed_equals_resident(
    family: Family,
    dtype: torch.dtype,
    num_slots: int,
    num_residents: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = resident(family.name, dtype, "cpu")
    on_cpu(monkeypatch)
    tower = build_tower(family, dtype, seed=1)
    model = model_of(family.name, tower)
    offloader = marked_offloader(family.name, model, num_slots, num_residents)
    fill(tower)  # as weights are loaded: after the mark, before `post_init`
    offloader.post_init()
    units = streaming(offloader)
    all_units = {unit.name for unit in units_of(family.name, model)}
    stay = all_units - {unit.name for unit in units}
    assert len(offloader.streamers) == len(TOWERS[family.name].marks)
    outsized = outsized_of(family.name, num_slots)
    assert stay > outsized if num_residents else stay == outsized
    weights = {
        f"{unit.name}.{name}": parameter
        for unit in units
        for name, parameter in unit.module.named_parameters()
    }
    rest = storages(weights)
    assert len(set(rest.values())) == len(units)  # one buffer each
    kept = {name: parameter.clone() for name, parameter in weights.items()}

    inputs = family.inputs(dtype)
    with torch.inference_mode():
        for cases in passes(list(inputs)):
            for case in cases:
                assert equal(outputs(family, tower, inputs[case]), expected[case]), case
                assert storages(weights) == rest, case
    assert all(torch.equal(weights[name], kept[name]) for name in kept)
    for streamer in offloader.streamers:
        assert streamer.never_entered() == []
        counters = streamer.counters()
        assert counters.bytes_copied >= streamer.streamed_bytes > 0
        if num_slots > 1:  # what was copied ahead was used
            assert counters.misses < counters.entries


def storages(weights: dict[str, nn.Parameter]) -> dict[str, int]:
    return {name: p.untyped_storage().data_ptr() for name, p in weights.items()}


def test_weights_that_are_not_waited_for_are_seen(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the equality above rests on."""
    on_cpu(monkeypatch, reveals=False)
    tower = build_tower(family, torch.float32)
    model = model_of(family.name, tower)
    offloader = marked_offloader(family.name, model, num_slots=2, num_residents=0)
    offloader.post_init()
    for case, expected in resident(family.name, torch.float32, "cpu").items():
        found = outputs(family, tower, family.inputs(torch.float32)[case])
        assert not any(equal([a], [b]) for a, b in zip(found, expected, strict=True)), case


@pytest.mark.parametrize(("num_slots", "num_residents"), [(1, 0), (2, 1), (3, 0)])
def test_streamed_equals_resident_on_the_standin(
    family: Family,
    dtype: torch.dtype,
    num_slots: int,
    num_residents: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing meets a wrong device: weights at rest are on the host, and refuse to compute."""
    expected = resident(family.name, dtype, "standin")
    kinds = standin_runtime()
    resting, on_device = kinds.RestingWeight, standin().StandInTensor
    with standin_accelerator() as device:
        streams_on(monkeypatch, device, lambda: Guarded(kinds.StandInTowerRuntime()))
        tower = build_tower(family, dtype, device)
        model = model_of(family.name, tower)
        # PyTorch refuses to rebind a parameter between these two kinds of tensor.
        runtime = kinds.StandInTowerRuntime()
        clean = clean_towers(family.name, model)
        whole = [*clean, *(unit.module for unit in units_of(family.name, model))]
        for parameter in {id(p): p for module in whole for p in module.parameters()}.values():
            runtime.point(parameter, parameter.data.cpu())
        offloader = marked_offloader(family.name, model, num_slots, num_residents)
        offloader.post_init()
        weights = {id(p) for unit in streaming(offloader) for p in unit.module.parameters()}
        assert weights
        if not num_residents:  # then no weight of a clean tower is left on the device
            weights |= {id(parameter) for tower in clean for parameter in tower.parameters()}
        standin().RestTensor.device_reads.clear()
        for cases in passes(list(expected))[:2]:
            for case in cases:
                inputs = to_device(family.inputs(dtype)[case], device)
                found = outputs(family, tower, inputs)
                assert all(output.device == device for output in found), case
                assert equal([output.cpu() for output in found], expected[case]), case
                for name, parameter in tower.named_parameters():
                    wanted = resting if id(parameter) in weights else on_device
                    assert type(parameter) is wanted, (case, name)
        # No result hangs on where a weight rests.
        reads = standin().RestTensor.device_reads
        assert {file for file, _ in reads} <= ({"tower_device.py"} if clean else set())


def test_a_tower_inside_the_language_model_is_refused() -> None:
    """Voxtral-Realtime's has a KV cache, and runs in each step of the decoder."""
    model = VoxtralRealtimeGeneration.__new__(VoxtralRealtimeGeneration)
    nn.Module.__init__(model)
    model.add_module("whisper_encoder", nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    offloader = towers.TowerOffloader(NoopOffloader(), 3, 0)
    with pytest.raises(ValueError, match=r"VoxtralRealtimeGeneration.*inside the language model"):
        offloader.offload_tower(model, ["whisper_encoder"])


def test_a_table_of_embeddings_is_left_alone() -> None:
    """Phi-3-Vision marks its text embeddings together with its vision encoder."""
    embeddings = nn.Embedding(1000, 64)
    assert find_units(embeddings, "embed_tokens", is_linear) == []
    blocks = [nn.ModuleList([nn.Linear(64, 64), nn.LayerNorm(64)]) for _ in range(4)]
    tower = nn.ModuleDict({"embed_tokens": embeddings, "blocks": nn.ModuleList(blocks)})
    found = {unit.name for unit in find_units(tower, "model", is_linear)}
    assert found == {f"model.blocks.{i}" for i in range(4)}
