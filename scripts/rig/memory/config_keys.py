"""Looking things up in a model's config, whose keys have had several names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


class Lacks(Exception):
    """A config does not say something that it must say."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
    },
    "gemma2": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}
"""What transformers takes where a config of that type is silent: multimodal models leave out of
their text part what is so. A test compares it with transformers."""


def with_defaults(text: Config, model_type: str) -> Config:
    """A config with what its type takes for granted."""
    return {**DEFAULTS.get(model_type, {}), **text}


def first(config: Config, *keys: str) -> Any:
    """The value of the first of these keys that is there, or None."""
    return next((config[k] for k in keys if config.get(k) is not None), None)


def need(config: Config, what: str, *keys: str) -> int:
    """The same as a number; the largest if there is one for each layer.

    Raises:
        Lacks: none of the keys is there.
    """
    found = first(config, *keys)
    if isinstance(found, list):
        found = max(found)
    if found is None:
        raise Lacks(f"{what} ({', '.join(keys)})")
    return int(found)
