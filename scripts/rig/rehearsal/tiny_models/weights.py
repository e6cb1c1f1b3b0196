# mypy: disable-error-code="import-not-found"
"""Seeded random weights that make every part of a model count.

The usual initial weights (a standard deviation of 0.02 everywhere) give a model whose answer is
nearly the same whatever it is shown: all logits lie close together, and a broken tower would go
unseen. Here each matrix keeps the size of what passes through it, so that a change of one weight
or one pixel reaches the logits.

Runs in the engine's environment (torch).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatch

import torch

# One-dimensional parameters: norms scatter around one, biases around zero.
_SPREAD = 0.2


def fill(model: torch.nn.Module, seed: int, gains: Mapping[str, float]) -> None:
    """Give every parameter of a model its own seeded values.

    The values depend on the seed and the parameter's name only, not on the order of the
    parameters: adding a layer leaves the other layers as they were.

    Args:
        gains: name pattern -> factor on a matrix's standard deviation; the first that matches
            counts, 1 where none does.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            if parameter.dim() == 1:
                values = values * _SPREAD + (0.0 if name.endswith("bias") else 1.0)
            else:
                values *= _gain(name, gains) * _unit_scale(model, name, parameter)
            parameter.copy_(values)


def _gain(name: str, gains: Mapping[str, float]) -> float:
    return next((gain for pattern, gain in gains.items() if fnmatch(name, pattern)), 1.0)


def _unit_scale(model: torch.nn.Module, name: str, parameter: torch.Tensor) -> float:
    """The standard deviation at which a matrix neither swells nor shrinks what it is given."""
    owner = model.get_submodule(name.rpartition(".")[0])
    if isinstance(owner, torch.nn.Embedding):
        return 1.0
    fan_in = parameter.numel() // parameter.shape[0]
    return float(fan_in**-0.5)
