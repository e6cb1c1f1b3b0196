"""Data that cannot be right by accident, and what is the matter with data that is not right.

Each 32-bit word depends on its position and on a salt, and the salt on the run, the iteration and
who sends to whom. So zeros, yesterday's data, data of another pair, data that was shifted by a
word and data that ends too early all differ from what must be there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

_RUN = 64  # words that must agree before a shift is believed
_SHIFTS_TRIED = 64


def salt(*parts: object) -> int:
    """A signed 32-bit number from anything printable."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)


def fill(words: torch.Tensor, salt: int) -> torch.Tensor:
    """Write the pattern of a salt into a flat int32 tensor, on its own device."""
    mixed = torch.arange(words.numel(), dtype=torch.int32, device=words.device)
    # Each step can be undone (odd factors, int32 wraps), so no two positions have the same word.
    # The masks take away the copies of the sign that a shift to the right brings in.
    mixed.mul_(-1640531535).add_(salt)
    mixed.bitwise_xor_((mixed >> 15).bitwise_and_(0x1FFFF))
    mixed.mul_(-2048144777)
    mixed.bitwise_xor_((mixed >> 13).bitwise_and_(0x7FFFF))
    words.copy_(mixed)
    return words


def words(count: int, salt: int, device: object) -> torch.Tensor:
    """A new flat int32 tensor with the pattern of a salt."""
    return fill(torch.empty(count, dtype=torch.int32, device=device), salt)


def summands(count: int, salt: int, device: object, dtype: torch.dtype) -> torch.Tensor:
    """int32 values so small that 16 of them add up exactly in `dtype`, whatever the order."""
    bits = {torch.float32: 20, torch.float16: 7}[dtype]
    numbers = words(count, salt, device)
    return numbers.bitwise_and_((1 << bits) - 1).sub_(1 << (bits - 1))


def diagnose(got: torch.Tensor, want: torch.Tensor, others: Mapping[str, torch.Tensor]) -> str:
    """Say how two flat tensors differ; "" if they do not.

    Args:
        others: what else might lie there, by the words that say so.
    """
    if torch.equal(got, want):
        return ""
    got, want = got.cpu(), want.cpu()
    bad = (got != want).nonzero().flatten()
    if not bad.numel():
        return "two comparisons of the same data disagree"
    first = int(bad[0])
    seen = got[bad]
    where = f"{bad.numel()} of {got.numel()} values are wrong, the first at {first}"
    if not seen.any():
        return f"{where}: zeros"
    for name, tensor in others.items():
        if torch.equal(seen, tensor.cpu()[bad]):
            return f"{where}: {name}"
    for start in (0, bad.numel() // 2):  # the first words may be others than the rest
        shift = _shift(got, want, bad[start : start + _RUN])
        if shift:
            return f"{where}: shifted by {shift} values"
    return f"{where}: got {got[first].item()} for {want[first].item()}"


def _shift(got: torch.Tensor, want: torch.Tensor, run: torch.Tensor) -> int:
    """How far right of its place this run of wrong values belongs; 0 if nowhere."""
    for place in (want == got[run[0]]).nonzero().flatten()[:_SHIFTS_TRIED].tolist():
        shift = int(run[0]) - int(place)
        home = run - shift
        inside = bool((home >= 0).all() and (home < want.numel()).all())
        if inside and run.numel() > 1 and torch.equal(want[home], got[run]):
            return shift
    return 0
