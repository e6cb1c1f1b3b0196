"""The head of a safetensors file: names, types and shapes of its tensors, no bytes of them.

The format: eight bytes, little-endian, say how long the JSON is that follows; it maps each name
to `dtype`, `shape` and the place of its bytes after the JSON.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rig.errors import RigError, first_line_of_os_error

LONGEST_HEADER = 100_000_000
"""Bytes. What the format itself allows."""

BITS = {
    **{"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8},
    **{"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16},
    **{"I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64},
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}
"""Bits of one value, by the format's names of types."""

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Types that an engine turns into its own when it loads an unquantised weight."""


class Tensor(NamedTuple):
    """A tensor of a checkpoint; `dtype` as safetensors names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return -(-self.numel * BITS[self.dtype] // 8)


def read_headers(files: Iterable[Path]) -> tuple[Tensor, ...]:
    """Read the tensors of all files of a checkpoint, in the order of the files.

    Raises:
        RigError: a file cannot be read, or is no whole safetensors file.
    """
    return tuple(tensor for file in files for tensor in read_header(file))


def read_header(file: Path) -> list[Tensor]:
    """Read the tensors of one file; see `read_headers`."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if length < 2 or length > min(LONGEST_HEADER, size - 8):
                raise _truncated(file, f"{size} bytes long, its header would take {length}")
            text = stream.read(length)
    except OSError as error:
        raise RigError(first_line_of_os_error(error), where=file) from error
    try:
        table = json.loads(text)
        tensors, end = _tensors(table)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RigError(
            "the header of a weight file makes no sense",
            where=file,
            next_step="download the file again",
            detail=str(error),
        ) from error
    if end > size - 8 - length:
        raise _truncated(file, f"{size} bytes long, its tensors need {8 + length + end}")
    return tensors


def tensors_of_table(table: Mapping[str, Any]) -> list[Tensor]:
    """The tensors of a header that was read already, `__metadata__` left out.

    Raises:
        ValueError, TypeError, KeyError: it is no such header.
    """
    return _tensors(table)[0]


def _tensors(table: Mapping[str, Any]) -> tuple[list[Tensor], int]:
    tensors, end = [], 0
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        if dtype not in BITS:
            raise ValueError(f"{name} has the unknown type {dtype}")
        if any(n < 0 for n in shape):
            raise ValueError(f"{name} has the shape {shape}")
        tensors.append(Tensor(name, dtype, shape))
        end = max(end, int(entry["data_offsets"][1]))
    return tensors, end


def _truncated(file: Path, detail: str) -> RigError:
    return RigError(
        "a weight file is not whole",
        where=file,
        next_step="download it again: it was cut short",
        detail=f"{file.name} is {detail}",
    )
