"""The generator of tiny models, as far as it works without torch and transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError
from rig.rehearsal import tiny_models
from rig.rehearsal.tiny_models import BUILDERS, build, digest_of
from rig.rehearsal.tiny_models.byte_tokenizer import PRINTABLE, byte_symbols, byte_vocabulary


def test_every_named_architecture_has_its_module() -> None:
    folder = Path(tiny_models.__file__).parent
    assert all((folder / f"{module}.py").is_file() for module in BUILDERS.values())


def test_an_unknown_architecture_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="no tiny model of qwen9") as caught:
        build("qwen9", tmp_path / "model", 7)
    assert "qwen3-vl" in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RigError, match="not empty"):
        build("qwen3-vl", tmp_path, 7)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_digest_sees_contents_and_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    first = digest_of(tmp_path)
    assert digest_of(tmp_path) == first
    (tmp_path / "b").write_bytes(b"3")
    second = digest_of(tmp_path)
    (tmp_path / "b").rename(tmp_path / "c")
    assert len({first, second, digest_of(tmp_path)}) == 3


def test_each_byte_has_a_symbol_of_its_own_as_byte_level_bpe_writes_it() -> None:
    symbols = byte_symbols()
    assert len(set(symbols)) == 256
    assert all(symbols[ord(c)] == c for c in PRINTABLE)
    # What every byte-level tokenizer file shows for space, newline, tab and the byte 0xAD.
    assert (symbols[0x20], symbols[0x0A], symbols[0x09]) == ("\u0120", "\u010a", "\u0109")
    assert (symbols[0x00], symbols[0xAD]) == ("\u0100", "\u0143")


def test_the_vocabulary_is_seeded_and_spreads_readable_bytes_over_four_parts() -> None:
    vocabulary = byte_vocabulary(7)
    assert vocabulary == byte_vocabulary(7) != byte_vocabulary(8)
    assert sorted(vocabulary.values()) == list(range(256))
    for rank in range(4):
        part = range(64 * rank, 64 * rank + 64)
        assert sum(vocabulary[c] in part for c in PRINTABLE) > 10
