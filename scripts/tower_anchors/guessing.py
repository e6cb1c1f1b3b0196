"""Inputs for a model without a recipe, guessed from the schemas that its code declares."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import torch
from tests.towers.family import numbers
from vllm.utils.tensor_schema import TensorSchema, TensorShape

from tower_anchors.recipe import OnHost
from tower_anchors.tiny import GRIDS

_ON_HOST = re.compile(
    r"""["']?(\w+)["']?\s*[=:]\s*MultiModalFieldConfig\.\w+\([^()]*keep_on_cpu=True"""
)
_TAKEN = re.compile(r"""kwargs\.(?:pop|get)\(\s*["'](\w+)["']|["'](\w+)["'] in kwargs""")
_PIXELS = ("pixel_values", "pixel_values_images", "images", "image_pixels")
ITEMS = 2


def cases(model_class: type, config: Any) -> dict[str, dict[str, Any]]:
    """A case for each schema of pixels or sound that the model's modules declare.

    Args:
        config: tiny; says the size of images.
    """
    sources = [inspect.getsource(module) for module in _modules(model_class)]
    on_host = {name for source in sources for name in _ON_HOST.findall(source)}
    taken = {a or b for source in sources for a, b in _TAKEN.findall(source)}
    found: dict[str, dict[str, Any]] = {}
    for schema in _schemas(model_class):
        fields = _fields(schema)
        made = _inputs(fields, config)
        if made is None:
            continue
        named = {_name(field, taken): value for field, value in made.items()}
        if set(named) - taken:
            continue
        found[schema.__name__] = {
            name: OnHost(value) if name in on_host and isinstance(value, torch.Tensor) else value
            for name, value in named.items()
        }
    return found


def _modules(model_class: type) -> list[Any]:
    names = dict.fromkeys(base.__module__ for base in model_class.__mro__)
    return [sys.modules[n] for n in names if n.startswith("vllm.") and "interfaces" not in n]


def _schemas(model_class: type) -> Iterator[type]:
    seen = set()
    for module in _modules(model_class):
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, TensorSchema)
                and value is not TensorSchema
                and "Embed" not in value.__name__
                and value not in seen
            ):
                seen.add(value)
                yield value


def _fields(schema: type) -> dict[str, tuple[Any, ...]]:
    """Names of the tensors of a schema, and their dimensions."""
    shapes = {}
    for name, hint in get_type_hints(schema, include_extras=True).items():
        for extra in get_args(hint)[1:]:
            if isinstance(extra, TensorShape) and type(None) not in get_args(get_args(hint)[0]):
                shapes[name] = tuple(extra.dims)
    return shapes


def _name(field: str, taken: set[str]) -> str:
    if field in taken or field not in ("data", "flat_data", "pixel_values"):
        return field
    return next((name for name in _PIXELS if name in taken), field)


def _inputs(fields: dict[str, tuple[Any, ...]], config: Any) -> dict[str, Any] | None:
    """Tensors of a schema's fields; None if their dimensions say nothing to us."""
    grid = next((f for f, dims in fields.items() if "grid" in f and dims[-1:] == (3,)), None)
    rows = GRIDS["image"][1]
    made: dict[str, Any] = {}
    for field, dims in fields.items():
        if field == grid:
            made[field] = torch.tensor(rows, device="cpu")
        elif grid is not None and len(dims) == 2:
            patches = sum(t * h * w for t, h, w in rows)
            made[field] = numbers(1, patches, patch_values(config))
        elif len(dims) >= 3 and 3 in dims[-3:]:
            side = image_size(config)
            shape = [3 if d == 3 else side if i >= len(dims) - 2 else 1 for i, d in enumerate(dims)]
            shape[0] = ITEMS
            made[field] = numbers(1, *shape)
        elif len(dims) == 1:
            made[field] = torch.ones(ITEMS, dtype=torch.int64, device="cpu")
        else:
            return None
    return made or None


def image_size(config: Any) -> int:
    """The side of the images that a configuration's vision part is for."""
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or getattr(vision, "img_size", None) or 64
    return int(size[0] if isinstance(size, (list, tuple)) else size)


def patch_values(config: Any) -> int:
    """Numbers in a patch of a model that takes flat patches."""
    vision = getattr(config, "vision_config", config)
    side = int(getattr(vision, "patch_size", 14))
    frames = int(getattr(vision, "temporal_patch_size", 1) or 1)
    return 3 * frames * side * side
