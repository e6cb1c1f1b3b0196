"""What stands for the parts of a model that are not a tower's: language models and tokenizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Stub(nn.Module):
    """A language model of which nothing is built."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return _NOTHING

    def forward(self, *_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("the language model is not built here")


class _Nothing:
    """Any attribute of a stub, called or asked for more."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, key: object) -> Any:
        return self

    def __ror__(self, other: Any) -> Any:
        return other

    def _itself(self, *_: Any) -> Any:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _itself
    __neg__ = __pow__ = __floordiv__ = _itself


_NOTHING = _Nothing()


class StubTokenizer:
    """A tokenizer that knows every token by a small number."""

    vocab_size = 128
    bos_token_id = eos_token_id = pad_token_id = unk_token_id = 1
    all_special_ids = (1,)
    is_fast = True

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_id"):
            return 7
        if name.endswith("_ids"):
            return [7]
        return f"<{name}>"

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return [7]

    def decode(self, *_: Any, **__: Any) -> str:
        return "x"

    def __call__(self, *_: Any, **__: Any) -> dict[str, list[int]]:
        return {"input_ids": [7], "attention_mask": [1]}

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return 7 if isinstance(tokens, str) else [7] * len(tokens)

    def get_vocab(self) -> dict[str, int]:
        return _AnyToken()

    def __len__(self) -> int:
        return self.vocab_size


class _AnyToken(dict[str, int]):
    def __missing__(self, token: str) -> int:
        return 7

    def __contains__(self, token: object) -> bool:
        return True

    def get(self, token: str, default: Any = None) -> Any:
        return 7


def nothing() -> Any:
    """What has any attribute, can be called, and is none of it."""
    return _NOTHING


class _Processor(_Nothing):
    """A processor that leaves nothing for the device to normalise."""

    do_rescale = do_normalize = False

    @property
    def image_processor(self) -> Any:
        return self


def any_processor(*_: Any, **__: Any) -> Any:
    """A processor of which no file is there."""
    return _Processor()
