"""Reading the head of a safetensors file: right, cut short, or nonsense."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.errors import RigError
from rig.memory.headers import BITS, Tensor, read_header, read_headers

from .makers import write_weights

SOME = [Tensor("a.weight", "BF16", (3, 5)), Tensor("b", "I32", ()), Tensor("c", "F8_E4M3", (7,))]


def test_names_types_and_shapes(tmp_path: Path) -> None:
    write_weights(tmp_path / "a.safetensors", SOME[:2])
    write_weights(tmp_path / "b.safetensors", SOME[2:])
    found = read_headers([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    assert list(found) == SOME
    assert [t.nbytes for t in found] == [30, 4, 7]


@given(st.data())
def test_a_file_cut_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.safetensors"
    write_weights(path, SOME)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(RigError, match="not whole"):
        read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "Q3", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 1]},
        {"dtype": "BF16", "shape": "x", "data_offsets": [0, 1]},
        {"dtype": "BF16", "shape": [1]},
        7,
    ],
)
def test_nonsense_is_refused(tmp_path: Path, entry: object) -> None:
    text = json.dumps({"a": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    with pytest.raises(RigError, match="makes no sense"):
        read_header(path)


def test_a_header_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 4) + b"{{{{" + bytes(8))
    with pytest.raises(RigError, match="makes no sense"):
        read_header(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="No such file"):
        read_header(tmp_path / "x.safetensors")


def test_every_type_has_a_size() -> None:
    assert all(bits in (4, 6, 8, 16, 32, 64) for bits in BITS.values())
