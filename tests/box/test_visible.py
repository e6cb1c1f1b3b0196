"""Which cards CUDA_VISIBLE_DEVICES selects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.box.facts import Box, Card
from rig.box.visible import visible_cards
from rig.errors import RigError

UUIDS = ("GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333", None)
BOX = Box(
    source="x",
    cards=tuple(
        Card(index=i, bus_id=f"0000:0{i + 1}:00.0", uuid=uuid) for i, uuid in enumerate(UUIDS)
    ),
)


def chosen(value: str | None) -> list[int]:
    return [card.index for card in visible_cards(BOX, value)]


@pytest.mark.parametrize(
    ("value", "cards"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("  ", []),
        ("0", [0]),
        ("3,1", [3, 1]),
        (" 2 , 0 ", [2, 0]),
        ("00", [0]),
        ("-1", []),
        ("1,-1,0", [1]),
        ("GPU-bbbb3333", [2]),
        ("gpu-BBBB", [2]),
        ("GPU-aaaa2,0", [1, 0]),
    ],
)
def test_what_is_selected(value: str | None, cards: list[int]) -> None:
    assert chosen(value) == cards


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("4", "there is no card 4: this box has 4, 0 to 3"),
        ("0,0", "names card 0 twice"),
        ("0,GPU-aaaa1111", "names card 0 twice"),
        ("GPU-aaaa", "the beginning of 2 cards"),
        ("GPU-cccc", "neither an index nor"),
        ("0,,1", "an empty entry is neither"),
        ("zero", "neither an index nor"),
        ("²", "neither an index nor"),
        ("MIG-1234", "is a MIG instance"),
        ("mig-GPU-aaaa1111/1/0", "is a MIG instance"),
    ],
)
def test_what_is_refused(value: str, said: str) -> None:
    with pytest.raises(RigError, match=said) as caught:
        chosen(value)
    assert caught.value.where == f"CUDA_VISIBLE_DEVICES={value}"


def test_a_box_without_cards() -> None:
    for box in (Box(source="x"), Box(source="x", cards=())):
        assert visible_cards(box, None) == ()
        with pytest.raises(RigError, match="this box has none"):
            visible_cards(box, "0")


@given(st.text(alphabet="0123,-GPUaMIG/ é", max_size=20))
def test_any_value_selects_cards_once_each_or_is_refused(value: str) -> None:
    try:
        found = chosen(value)
    except RigError:
        return
    assert len(set(found)) == len(found)
