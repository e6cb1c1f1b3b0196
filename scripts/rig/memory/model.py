"""A model as it is planned with: what its config says, and its weights without their bytes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rig.memory.architecture import Architecture, read_architecture
from rig.memory.config_tensors import tensors_of
from rig.memory.headers import Tensor
from rig.memory.quantization import Quantization, read_quantization
from rig.memory.result import ModelFacts
from rig.memory.shards import Alike, alike


@dataclass(frozen=True)
class Model:
    """A model, read from a folder, a hub or a config file; see `rig.memory.source.read_model`.

    Args:
        source: the folder, hub id or config file.
        revision: the commit that a hub id stood for, or "".
        tensors: its weights.
        measured: whether those were read from headers; else they are computed from the config.
        preprocessor: of images, as it came with the model.
    """

    source: str
    revision: str
    config: Mapping[str, Any]
    architecture: Architecture
    quantization: Quantization
    tensors: tuple[Tensor, ...]
    measured: bool
    preprocessor: Mapping[str, Any] | None = None

    @functools.cached_property
    def alike(self) -> Alike:
        """Its weights, those of experts put together."""
        return alike(self.tensors)

    @property
    def facts(self) -> ModelFacts:
        """What others need to know of it."""
        model = self.architecture
        towers = (("vision", model.vision), ("audio", model.audio))
        return ModelFacts(
            source=self.source,
            architecture=model.name,
            attention_heads=model.heads,
            kv_heads=model.kv_heads,
            layers=len(model.layers),
            max_model_len=model.max_len,
            dtype=model.dtype,
            quantization=None if self.quantization.method == "none" else self.quantization.name,
            mla=model.mla,
            moe_experts=model.experts.count if model.experts else 0,
            towers=tuple(name for name, part in towers if part is not None),
        )


def model_of(
    config: Mapping[str, Any],
    tensors: tuple[Tensor, ...] | None,
    *,
    source: str,
    revision: str = "",
    preprocessor: Mapping[str, Any] | None = None,
) -> Model:
    """Make a model from a config, and from what the headers of its weights say if they were read.

    Raises:
        RigError: the config is none of a model that generates text.
    """
    architecture = read_architecture(config, source)
    quantization = read_quantization(config)
    return Model(
        source=source,
        revision=revision,
        config=config,
        architecture=architecture,
        quantization=quantization,
        tensors=tensors if tensors is not None else tensors_of(architecture, quantization),
        measured=tensors is not None,
        preprocessor=preprocessor,
    )
