"""A recipe: how to build the models of one family tiny, and what to give them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

Kwargs = Mapping[str, Any]


@dataclass(frozen=True)
class OnHost:
    """A tensor that vLLM hands to a model on the host (`keep_on_cpu`): grids, lengths."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class Recipe:
    """How to build and call the models of one family.

    Attributes:
        models: names of the architectures, or of the registered classes or bases of theirs, that
            this recipe serves. The nearest one counts: an architecture's own name first, then its
            class, then that class's bases in their order.
        config: makes the configuration of an architecture, as transformers or vLLM has it.
        cases: keyword arguments of `embed_multimodal` by case, for that configuration. Tensors
            go to the device, but for those in `OnHost`, as vLLM's runner does. Several items of
            several sizes in a case where the model allows it.
        calls: what else prepares an encode outside any forward: its name -> a function that is
            given the model and returns tensors. A model's encoder CUDA graph helpers are called
            without being named here.
        towers: names of tower classes: a model without a recipe that builds one of them is
            tried with this configuration of it.
        options: of vLLM's `ModelConfig`, where others are needed than usual.
        patches: a context for building: what a model would read from files that are not there.
    """

    models: tuple[str, ...]
    config: Callable[[str], Any]
    cases: Callable[[Any], Mapping[str, Kwargs]]
    calls: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    towers: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    patches: Callable[[], Any] | None = None


class NotHere(Exception):
    """This release of transformers or vLLM has not what a recipe needs."""


@cache
def all_recipes() -> tuple[tuple[str, Recipe], ...]:
    """The recipes by the name of their module; one that cannot be imported is left out.

    A module gives a list of them in `RECIPES`.
    """
    import tower_anchors.recipes as folder

    found: list[tuple[str, Recipe]] = []
    for info in pkgutil.iter_modules(folder.__path__):
        try:
            module = importlib.import_module(f"{folder.__name__}.{info.name}")
            found.extend((info.name, recipe) for recipe in module.RECIPES)
        except Exception as error:
            # Of another release than it was written for: the other recipes are as good as ever.
            _unusable[info.name] = f"{type(error).__name__}: {error}"
    return tuple(found)


_unusable: dict[str, str] = {}


def unusable() -> Mapping[str, str]:
    """Recipe modules that could not be imported, and why."""
    all_recipes()
    return _unusable


def recipe_for(architecture: str, model_class: type) -> tuple[str, Recipe] | None:
    """The recipe that is nearest to an architecture, and where it is from."""
    names = [architecture, *(base.__name__ for base in model_class.__mro__)]
    for name in names:
        for module, recipe in all_recipes():
            if name in recipe.models:
                return module, recipe
    return None
