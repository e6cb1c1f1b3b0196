"""Toy towers that are anchored on purpose, each in another way: all are caught by file and line.

Needs vLLM, which the tools' own Python has not: tests/engine/test_anchors.py runs this.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

import torch
from torch import nn
from vllm.model_executor.models.qwen3_vl import Qwen3_VisionTransformer

from tests.towers.family import engine_context
from tower_anchors.catching import catch
from tower_anchors.devices import OnDevice, rest, standin_accelerator
from tower_anchors.judging import Judgement, judge
from tower_anchors.registry import inspect_in_this_process
from tower_anchors.strictest import rest_parameters
from tower_anchors.watch import AtRest, Watch, watching

WIDTH = 4
PIXELS = torch.arange(12.0).reshape(3, WIDTH)


class Tower(nn.Module):
    """Clean: each weight is used in its module's forward, or brought to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def positions(self, x: torch.Tensor) -> torch.Tensor:
        return self.table.weight.to(x.device)[: len(x)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.proj(x) + self.positions(x)
        return self.attn(x, x, x, need_weights=False)[0] + self.table(torch.tensor(1).to(x.device))


class Anchored(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        device = self.proj.weight.device  # here
        return super().forward(x) * torch.arange(WIDTH, device=device)


class ComputesOnTheHost(Tower):
    """Right, and silent: nothing would fail, on a GPU neither."""

    def positions(self, x: torch.Tensor) -> torch.Tensor:
        table = self.table.weight[: len(x)] * 1.5  # here
        return table.to(x.device)


class Likes(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.ones(WIDTH).to(self.proj.weight)  # here


class MakesNew(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.proj.weight.new_zeros(WIDTH)  # here


class ChoosesByCuda(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.proj.weight.is_cuda:  # here
            raise AssertionError("no such device here")
        return super().forward(x)


class RefusesTheHost(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.proj.weight.is_cpu, "weights must be on the device"  # here
        return super().forward(x)


class OtherValuesOnTheHost(Tower):
    """The result is on the right device, and another one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 2.0 if self.proj.weight.device.type == "cpu" else 1.0  # here
        return super().forward(x) * scale


class KeepsATable(Anchored):
    """What it keeps from its first run must not hide the anchor from the second."""

    kept: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = torch.arange(WIDTH, device=self.proj.weight.device)  # here
        return Tower.forward(self, x) * self.kept


class ReadsAndDoesNotMind(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.proj.weight.device.type in ("cpu", x.device.type)  # here
        return super().forward(x)


class OnlyTogether(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        devices = {self.proj.weight.device.type}
        devices.add(self.table.weight.device.type)
        return super().forward(x) + float(x.device.type in devices)


BROKEN = (
    Anchored,
    ComputesOnTheHost,
    Likes,
    MakesNew,
    ChoosesByCuda,
    RefusesTheHost,
    OtherValuesOnTheHost,
    KeepsATable,
)


@pytest.fixture(autouse=True)
def device() -> Iterator[torch.device]:
    with torch.no_grad(), standin_accelerator() as device:
        yield device


def judged(tower: type[nn.Module], run: Callable[[nn.Module], Any] | None = None) -> Judgement:
    torch.manual_seed(0)
    with torch.device("standin"):
        model = tower()

    def encode(model: nn.Module) -> Any:
        return model(PIXELS.to("standin"))

    return judge(model, {"encode": run or encode}, lambda m: rest_parameters(m, lambda name: True))


def line_of(tower: Any) -> int:
    """The line that says "here"."""
    lines, first = inspect.getsourcelines(tower)
    return first + next(i for i, text in enumerate(lines) if text.rstrip().endswith("# here"))


@pytest.mark.parametrize("tower", [Tower, ReadsAndDoesNotMind])
def test_a_clean_tower(tower: type[nn.Module]) -> None:
    found = judged(tower)
    assert found.anchors == [] and found.notes == []
    assert len(found.met) == 7  # all its weights
    reads = [f.site.line for f in found.findings]
    assert reads == ([] if tower is Tower else [line_of(tower)])


@pytest.mark.parametrize("tower", BROKEN)
def test_an_anchor_is_caught_by_file_and_line(tower: type[nn.Module]) -> None:
    (anchor,) = judged(tower).anchors
    assert (anchor.site.file, anchor.site.line) == (Path(__file__).name, line_of(tower))
    assert anchor.kind == ("compute" if tower is ComputesOnTheHost else "read")
    assert anchor.weights == ("table.weight" if tower is ComputesOnTheHost else "proj.weight",)
    assert anchor.why


def test_anchors_that_only_matter_together() -> None:
    # Either answer alone leaves the other's: only both change the result.
    anchors = judged(OnlyTogether).anchors
    assert len(anchors) == 2 and all("together" in anchor.why for anchor in anchors)


def test_all_anchors_are_found_and_not_the_first_only() -> None:
    class Many(ComputesOnTheHost):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x) + torch.ones(WIDTH, device=self.proj.weight.device)
            return y + torch.ones(WIDTH, device=self.table.weight.device)

    assert sorted(a.kind for a in judged(Many).anchors) == ["compute", "read", "read"]


def test_what_prepares_an_encode_is_run_too() -> None:
    found = judged(Tower, lambda model: torch.zeros(2, device=model.proj.weight.device))
    assert [a.why for a in found.anchors] == ["encode: a result on cpu, not on standin"]


def test_a_weight_at_rest_may_be_copied_and_viewed_only(device: torch.device) -> None:
    weight = rest(torch.arange(6.0).reshape(2, 3), "w")
    with watching(Watch()) as watch:
        assert torch.equal(weight.t()[1:].to(device).held, torch.tensor([[1.0, 4.0], [2.0, 5.0]]))
        assert weight.detach().clone().half().name == "w"
        assert not watch.computes and watch.met == {"w"}
        computes: list[Callable[[], Any]] = [
            lambda: weight + 1,
            lambda: nn.functional.linear(torch.ones(3), weight),
            lambda: weight.mul_(2),
            lambda: torch.cat([weight, weight]),
        ]
        for compute in computes:
            with pytest.raises(AtRest, match="weight at rest"):
                compute()


def test_devices_meet_as_they_would_on_an_accelerator(device: torch.device) -> None:
    there, here = torch.ones(2, 2, device=device), torch.ones(2, 2)
    assert isinstance(there, OnDevice)
    with watching(Watch()):
        assert (there + torch.tensor(1.0)).device == device  # a scalar may join in
        assert there[torch.tensor([0])].device == device  # and host indices
        mixes: list[Callable[[], Any]] = [
            lambda: there + here,
            lambda: here[torch.tensor([0]).to(device)],
        ]
        for mix in mixes:
            with pytest.raises(AtRest, match="two devices"):
                mix()
        with pytest.raises(TypeError, match="can't convert"):
            there.numpy()


@pytest.fixture
def engine() -> Iterator[None]:
    inspect_in_this_process()
    with engine_context():
        yield


def anchored_again(tower: Qwen3_VisionTransformer) -> torch.device:
    device: torch.device = tower.patch_embed.proj.weight.device  # here
    return device


def test_a_registered_model_that_is_anchored_again(
    engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "Qwen3VLForConditionalGeneration"
    before = catch(name)
    assert (before.verdict, before.unmet) == ("clean", []), before
    assert {"1 image", "3 image", "2 video", "graph inputs"} <= set(before.runs)

    monkeypatch.setattr(Qwen3_VisionTransformer, "device", property(anchored_again))
    after = catch(name)
    assert after.verdict == "anchor"
    found, *more = (f for f in after.findings if not f["harmless"])
    assert not more, more
    assert found["site"] == {
        "file": Path(__file__).name,
        "line": line_of(anchored_again),
        "code": "device: torch.device = tower.patch_embed.proj.weight.device  # here",
    }


def test_what_cannot_be_built_says_why(engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *_: Any, **__: Any) -> None:
        raise RuntimeError("no such\ntower")

    monkeypatch.setattr(Qwen3_VisionTransformer, "__init__", broken)
    found = catch("Qwen3VLForConditionalGeneration")
    assert found.verdict == "cannot build"
    assert found.reason.startswith("building: RuntimeError: no such (")
