"""Rig files: those that come along, names, and what a person may get wrong."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.box.facts import Box
from rig.box.read import read_box
from rig.box.rig_file import Rig
from rig.box.rigs import find_rig, read_rig, rig_names, rigs_folder
from rig.errors import RigError
from tests.box.fake_system import fake_box, four_3090s

GOOD = """\
[cards]
count = 2
name = "NVIDIA GeForce RTX 3090"
vram_gib = 24
compute_capability = [8, 6]

[link]
generation = 4
width = 8
"""

# The makers' public figures: GiB, compute capability, PCIe generation.
FIGURES = {"3090": (24.0, (8, 6), 4), "4090": (24.0, (8, 9), 4), "5090": (32.0, (12, 0), 5)}


def fails(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(RigError) as caught:
        read_rig(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "box.toml"


def test_the_rigs_that_come_along() -> None:
    assert rig_names() == (
        *("1x3090", "1x4090", "1x5090", "2x3090", "2x3090-nvlink", "2x4090", "2x5090"),
        *("3x3090", "4x3090", "4x4090", "4x5090", "8x3090"),
    )


@pytest.mark.parametrize("name", rig_names())
def test_a_rig_that_comes_along_says_what_its_name_says(name: str) -> None:
    rig = find_rig(name)
    count, _, rest = name.partition("x")
    card, _, bridge = rest.partition("-")
    assert rig.name == name
    assert rig.description
    assert rig.cards.count == int(count)
    assert rig.cards.name == f"NVIDIA GeForce RTX {card}"
    figures = rig.cards.vram_gib, rig.cards.compute_capability, rig.link.generation
    assert figures == FIGURES[card]
    assert rig.cards.nvlink_pairs == (((0, 1),) if bridge else ())
    assert rig.p2p.policy == "verified"
    assert rig.power.psu_w is None  # nobody can know it for you
    text = (rigs_folder() / f"{name}.toml").read_text()
    assert text.startswith("# ")
    assert "name" not in tomllib.loads(text)  # the file's own name is the rig's


def test_every_serve_script_has_its_rig() -> None:
    for script in rigs_folder().parent.glob("serve-*.sh"):
        assert script.stem.removeprefix("serve-") in rig_names()


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("4x309", "4x3090"),
        ("2x3090-nvlnk", "2x3090-nvlink"),
        ("2X3090-NVLINK", "2x3090-nvlink"),
        ("2x3090_nvlink", "2x3090-nvlink"),
        ("zzzzzz", None),
        ("", None),
    ],
)
def test_a_wrong_name_offers_the_nearest(name: str, offer: str | None) -> None:
    with pytest.raises(RigError) as caught:
        find_rig(name)
    assert caught.value.next_step is not None
    if offer is None:
        assert "did you mean" not in caught.value.next_step
    else:
        assert f"did you mean {offer}?" in caught.value.next_step
    assert "4x3090" in str(caught.value.where)


def test_a_path_and_a_folder_of_ones_own(path: Path) -> None:
    path.write_text(GOOD)
    assert find_rig(str(path)) == find_rig("box", folder=path.parent)
    assert find_rig(str(path)).name == "box"
    path.write_text('name = "mine"\n' + GOOD)
    assert find_rig(str(path)).name == "mine"


def test_a_byte_order_mark_is_no_fault(path: Path) -> None:
    path.write_text("\ufeff" + GOOD)
    assert read_rig(path).cards.count == 2


def test_auto_is_made_from_the_box(tmp_path: Path) -> None:
    made = fake_box(tmp_path, four_3090s())
    rig = find_rig("auto", box=read_box(made.system, made.nvml))
    assert (rig.name, rig.cards.count, rig.cards.vram_gib) == ("auto", 4, 24.0)
    with pytest.raises(RigError, match="finds no cards"):
        find_rig("auto", box=Box(source="nowhere"))


def test_no_file_a_folder_and_a_file_that_is_no_text(path: Path) -> None:
    with pytest.raises(RigError, match="No such file"):
        find_rig(str(path))
    path.mkdir()
    with pytest.raises(RigError, match="Is a directory"):
        find_rig(str(path))
    assert "not UTF-8" in fails(path.parent / "odd.toml", b"\xff\xfe[\0c\0")


@pytest.mark.parametrize(
    ("text", "line"),
    [("[cards]\ncount =\n", 2), ("[cards\n", 1), (GOOD + "width = 8\n", 10), ("a = b'\n", 1)],
)
def test_what_is_no_toml_names_the_line(path: Path, text: str, line: int) -> None:
    assert f"at line {line}," in fails(path, text)


def test_an_unknown_key_offers_the_nearest_and_lists_all(path: Path) -> None:
    said = fails(path, GOOD.replace("vram_gib", "vram_gb"))
    assert "line 4: [cards] vram_gb is not known: did you mean 'vram_gib'? known here: " in said
    assert "count, name, vram_gib, compute_capability, nvlink_pairs" in said
    assert "line 1: [cards] vram_gib is missing" in said
    assert "2 faults" in said


def test_an_unknown_table_offers_the_nearest(path: Path) -> None:
    said = fails(path, GOOD + "[powr]\npsu_w = 3\n")
    assert "line 10: powr is not known: did you mean 'power'? known here: name, " in said


def test_a_key_that_is_near_to_nothing_is_listed_only(path: Path) -> None:
    said = fails(path, GOOD + "[p2p]\nzzz = 1\n")
    assert "line 11: [p2p] zzz is not known: known here: policy" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count = 2", "count = 0", "line 2: [cards] count: "),
        ("count = 2", "count = 99", "line 2: [cards] count: "),
        ("count = 2", 'count = "two"', "line 2: [cards] count: "),
        ("vram_gib = 24", "vram_gib = -1", "line 4: [cards] vram_gib: "),
        ("vram_gib = 24", "vram_gib = nan", "line 4: [cards] vram_gib: "),
        ("[8, 6]", "8.6", "line 5: [cards] compute_capability: "),
        ("[8, 6]", "[8]", "line 5: [cards] compute_capability: value 2 is missing"),
        ("width = 8", "width = 3", "line 9: [link] width: "),
        ("generation = 4", "generation = 7", "line 8: [link] generation: "),
        ("[link]", "[[link]]", "link: "),
        ("width = 8", 'width = 8\n[p2p]\npolicy = "on"', "line 11: [p2p] policy: "),
        ("width = 8", "width = 8\n[defaults]\nport = 0", "line 11: [defaults] port: "),
        ("width = 8", "width = 8\n[defaults]\narguments = 'x'", "line 11: [defaults] arguments: "),
    ],
)
def test_a_wrong_value_names_its_line_and_key(path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    assert said in fails(path, GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ("[[0, 2]]", "names cards from 0 to 1"),
        ("[[0, -1]]", "names cards from 0 to 1"),
        ("[[0, 0]]", "names a card twice"),
        ("[[0, 1], [1, 0]]", "names a card twice"),
    ],
)
def test_nvlink_pairs_of_cards_that_are_there(path: Path, pairs: str, said: str) -> None:
    with_pairs = GOOD.replace("[8, 6]\n", f"[8, 6]\nnvlink_pairs = {pairs}\n")
    assert said in fails(path, with_pairs)


def test_an_inline_table_has_no_line_but_says_what(path: Path) -> None:
    text = GOOD.partition("[link]")[0] + ""
    said = fails(path, "link = { generation = 4, wdth = 8 }\n" + text)
    assert "[link] wdth is not known: did you mean 'width'?" in said


@settings(deadline=None)
@given(st.text(max_size=120))
def test_any_text_is_a_rig_or_an_error_for_people(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_bytes((text + "\n" + GOOD).encode("utf-8", "surrogatepass"))
        try:
            assert isinstance(read_rig(path), Rig)
        except RigError as error:
            assert error.next_step
