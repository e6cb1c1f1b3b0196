"""The strictest offloader: a module has its own weights on the device for its own forward only."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tower_anchors.devices import OnDevice, Resting, rest
from tower_anchors.watch import current


def rest_parameters(model: nn.Module, chosen: Callable[[str], bool]) -> int:
    """Rest parameters on the host, and bring each module's own for its `forward`.

    Args:
        chosen: whether a parameter rests, by its name.

    Returns:
        How many rest. Names of one tensor stay so.
    """
    resting: dict[int, nn.Parameter] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, parameter in list(module._parameters.items()):
            full = f"{path}.{name}" if path else name
            if not isinstance(parameter, OnDevice) or not chosen(full):
                continue
            if id(parameter) not in resting:
                kept = nn.Parameter(rest(parameter.held, full), requires_grad=False)
                kept.name = full
                # The old one is kept, so that its identity is not given to another.
                kept.__dict__["was"] = parameter
                _copy_attributes(parameter, kept)
                resting[id(parameter)] = kept
            module._parameters[name] = resting[id(parameter)]
    for module in model.modules():
        if any(isinstance(p, Resting) for p in module._parameters.values()):
            _bring_for_forward(module)
    return len(resting)


def _copy_attributes(source: Any, target: Any) -> None:
    for key, value in source.__dict__.items():
        if key not in ("held", "name"):
            target.__dict__.setdefault(key, value)


def _bring_for_forward(module: nn.Module) -> None:
    forward = module.forward
    # It hands the weights of its child to a function: one unit.
    whole = isinstance(module, nn.MultiheadAttention)
    members = list(module.modules()) if whole else [module]

    def forward_on_device(*args: Any, **kwargs: Any) -> Any:
        before = [dict(member._parameters) for member in members]
        for member in members:
            for name, parameter in member._parameters.items():
                if isinstance(parameter, Resting):
                    weight = nn.Parameter(OnDevice(parameter.held), requires_grad=False)
                    _copy_attributes(parameter, weight)
                    current().met.add(parameter.name)
                    member._parameters[name] = weight
        try:
            return forward(*args, **kwargs)
        finally:
            for member, parameters in zip(members, before, strict=True):
                member._parameters.update(parameters)

    module.forward = forward_on_device


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Undo what a run leaves in a model: tables and caches that it keeps for the next one."""
    modules = list(model.modules())
    before = [_shallow(module.__dict__) for module in modules]
    try:
        yield
    finally:
        for module, attributes in zip(modules, before, strict=True):
            module.__dict__.clear()
            module.__dict__.update(attributes)


def _shallow(attributes: dict[str, Any]) -> dict[str, Any]:
    """The same attributes, their lists, sets and mappings copied so that both may change."""
    return {
        key: copy.copy(value) if type(value) in (dict, list, set) else value
        for key, value in attributes.items()
    }


def on_meta(parameter: torch.Tensor) -> bool:
    """Whether a parameter has no values: it is of a part that was not built."""
    return bool(parameter.device.type == "meta")
