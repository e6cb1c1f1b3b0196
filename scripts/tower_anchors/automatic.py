"""Recipes for models that have none: from the tower that they build, or from their code alone."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from transformers import PretrainedConfig

from tower_anchors import guessing
from tower_anchors.recipe import NotHere, Recipe, all_recipes
from tower_anchors.shrinking import shrink

_PARTS = ("vision_config", "audio_config", "visual", "vit_config", "vision_tower_config")


def attempts(architecture: str, model_class: type) -> Iterator[tuple[str, Recipe]]:
    """What can be tried, the likeliest first."""
    towers = tower_classes(model_class)
    for module, recipe in all_recipes():
        if towers & set(recipe.towers):
            yield f"{module}, by its tower", recipe
            yield f"{module}, by its tower; configuration shrunk", _with_part(model_class, recipe)
    yield (
        "automatic",
        Recipe(
            models=(architecture,),
            config=lambda _: shrunk_config(model_class),
            cases=lambda config: guessing.cases(model_class, config),
        ),
    )


def _with_part(model_class: type, recipe: Recipe) -> Recipe:
    """A recipe with the model's own configuration, and of the recipe's only the tower's part."""

    def config(architecture: str) -> Any:
        made, known = shrunk_config(model_class), recipe.config(architecture)
        for part in _PARTS:
            if hasattr(made, part) and hasattr(known, part):
                setattr(made, part, getattr(known, part))
        return made

    return Recipe(models=recipe.models, config=config, cases=recipe.cases, patches=recipe.patches)


def tower_classes(model_class: type) -> set[str]:
    """Names of what a model's `__init__` builds where it marks towers."""
    found: set[str] = set()
    for base in model_class.__mro__:
        init = base.__dict__.get("__init__")
        if init is None or not base.__module__.startswith("vllm."):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(init)))
        for block in ast.walk(tree):
            if isinstance(block, ast.With) and any(
                "tower" in ast.unparse(item.context_expr) for item in block.items
            ):
                found |= {
                    node.func.id
                    for node in ast.walk(block)
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                }
    return found


def shrunk_config(model_class: type) -> Any:
    """A tiny configuration of the class that a model's code names.

    Raises:
        NotHere: it names none, or one that cannot be made without a file.
    """
    classes = list(config_classes(model_class))
    for found in classes:
        try:
            whole = found().to_dict()
            whole.pop("architectures", None)
            return found.from_dict(shrink(whole))
        except Exception as error:
            failure = f"{found.__name__} has no tiny form: {type(error).__name__}: {error}"
    raise NotHere(failure.splitlines()[0] if classes else "its code names no configuration class")


def config_classes(model_class: type) -> Iterator[type[PretrainedConfig]]:
    """Configuration classes that may be a model's: of its name first, then those its code names."""
    wanted = _core(model_class.__name__)
    found: dict[type[PretrainedConfig], tuple[bool, bool, int]] = {}
    for value in (*_of_that_name(wanted), *_in_modules(model_class)):
        whole = any(part in getattr(value, "sub_configs", {}) for part in _PARTS)
        words = _core(value.__name__)
        part = bool(_OF_PARTS & set(_words(value.__name__)))
        found.setdefault(value, (words == wanted, whole and not part, len(words & wanted)))
    found.pop(PretrainedConfig, None)
    yield from sorted(found, key=lambda value: found[value], reverse=True)


def _in_modules(model_class: type) -> Iterator[type[PretrainedConfig]]:
    for base in model_class.__mro__:
        module = sys.modules.get(base.__module__)
        if module is not None and base.__module__.startswith("vllm.model"):
            for value in vars(module).values():
                if isinstance(value, type) and issubclass(value, PretrainedConfig):
                    yield value


def _of_that_name(words: frozenset[str]) -> Iterator[type[PretrainedConfig]]:
    import transformers
    import vllm.transformers_utils.configs as own
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    for package, names in ((own, own.__all__), (transformers, CONFIG_MAPPING_NAMES.values())):
        for name in names:
            if _core(name) == words:
                try:
                    yield getattr(package, name)
                except (AttributeError, ImportError):
                    continue


_OF_PARTS = {"Vision", "Audio", "Text"}
_NOT_OF_ITS_NAME = {"For", "Conditional", "Generation", "Causal", "LM", "Model", "Config", "Chat"}


def _core(name: str) -> frozenset[str]:
    """The words of a name without those that say what kind of class it is."""
    return frozenset(word.lower() for word in _words(name) if word not in _NOT_OF_ITS_NAME)


def _words(name: str) -> list[str]:
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[0-9]+", name)
