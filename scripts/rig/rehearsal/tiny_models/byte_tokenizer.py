# mypy: disable-error-code="import-not-found"
"""A tokenizer with one token per byte, for models that were never trained.

Runs in the engine's environment (transformers).
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported where it is used: the vocabulary is tested without it
    from transformers import Qwen2Tokenizer

PRINTABLE = frozenset(string.ascii_letters + string.digits + string.punctuation)


def byte_symbols() -> list[str]:
    """The character by which byte-level BPE writes each of the 256 bytes, by byte.

    Printable Latin-1 bytes stand for themselves; the others are moved up, in order, to the
    characters from U+0100 on.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(moved)) for byte in range(256)]


def byte_vocabulary(seed: int) -> dict[str, int]:
    """Symbol -> id, in a seeded order.

    In the usual order the printable bytes come first and would all lie in the first ranks'
    parts of a vocabulary that is split over ranks.
    """
    symbols = byte_symbols()
    random.Random(seed).shuffle(symbols)
    return {symbol: index for index, symbol in enumerate(symbols)}


def byte_tokenizer(seed: int, special: Sequence[str], end: str, pad: str) -> Qwen2Tokenizer:
    """A tokenizer of 256 bytes and the special tokens after them."""
    from transformers import Qwen2Tokenizer

    tokenizer = Qwen2Tokenizer(
        vocab=byte_vocabulary(seed), merges=[], unk_token=pad, eos_token=end, pad_token=pad
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [t for t in special if t not in (end, pad)]}
    )
    return tokenizer


def readable_ids(tokenizer: Qwen2Tokenizer) -> list[int]:
    """The ids of the bytes that show as one printable ASCII character."""
    return sorted(tokenizer.convert_tokens_to_ids(symbol) for symbol in PRINTABLE)
