"""What makes a stored verdict void, and what the file on disk must be."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig.box.facts import Box, Bridge, Host
from rig.errors import RigError
from rig.p2p.key import changes, key_of, key_parts, packages_of
from rig.p2p.store import find_verdict, look_up, only_one, read_verdict, verdict_file, write_verdict
from rig.p2p.verdict import Result, Verdict

from .conftest import PACKAGES, a_box

Player = Callable[..., Path]


def a_verdict(box: Box) -> Verdict:
    parts = key_parts(box, PACKAGES)
    passed = Result(way="copy", cards=(0, 1), size_bytes=4096, outcome="passed", gb_per_s=25.0)
    return Verdict(
        key=key_of(parts),
        made_at="2026-11-30T10:00:00+00:00",
        results=(passed, passed.model_copy(update={"cards": (1, 0)})),
        parts=parts,
    )


def test_it_is_found_again(player: Player, tmp_path: Path) -> None:
    box = a_box(2)
    write_verdict(a_verdict(box), box, tmp_path / "state")
    assert look_up(box, player(), tmp_path / "state").verdict == a_verdict(box)


def card_elsewhere(box: Box) -> Box:
    cards = box.cards or ()
    moved = cards[1].model_copy(update={"bus_id": "0000:41:00.0"})
    return box.model_copy(update={"cards": (cards[0], moved)})


def narrower_slot(box: Box) -> Box:
    cards = box.cards or ()
    link = cards[1].link.model_copy(update={"slot_width_max": 4})
    narrow = cards[1].model_copy(update={"link": link})
    return box.model_copy(update={"cards": (cards[0], narrow)})


def other_host(**facts: str) -> Callable[[Box], Box]:
    def change(box: Box) -> Box:
        host = Host.model_validate(box.host.model_dump() | facts)
        return box.model_copy(update={"host": host})

    return change


def acs_on(box: Box) -> Box:
    bridge = Bridge(bus_id="0000:00:01.0", acs_redirects=True)
    return box.model_copy(update={"bridges": (bridge,)})


def joined(**facts: object) -> Callable[[Box], Box]:
    def change(box: Box) -> Box:
        pairs = box.pairs or ()
        other = pairs[0].model_validate(pairs[0].model_dump() | facts)
        return box.model_copy(update={"pairs": (other, *pairs[1:])})

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (card_elsewhere, "card 1 was GPU-0001 at 0000:02:00.0, is GPU-0001 at 0000:41:00.0"),
        (narrower_slot, "slot x16, gen 4, is card x16, gen 4, slot x4, gen 4"),
        (other_host(driver_version="590.1"), "driver was 580.95.05, is 590.1"),
        (other_host(kernel="6.13.0"), "kernel was 6.12.1, is 6.13.0"),
        (other_host(iommu="translated"), "IOMMU was off, is translated"),
        (joined(level="NV", nvlinks=4), "0-1 PHB, P2P granted, is 0-1 NV4, P2P granted"),
        (joined(p2p="refused", p2p_why="CNS"), "0-1 PHB, P2P granted, is 0-1 PHB, P2P refused"),
        (acs_on, "ACS was 0000:00:01.0 does not redirect, is 0000:00:01.0 redirects"),
    ],
)
def test_a_change_of_the_box_makes_it_void_and_is_named(
    change: Callable[[Box], Box], said: str, player: Player, tmp_path: Path
) -> None:
    box = a_box(2)
    write_verdict(a_verdict(box), box, tmp_path / "state")
    found = look_up(change(box), player(), tmp_path / "state")
    assert found.verdict is None
    assert said in found.why_not
    assert "2026-11-30" in found.why_not


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_another_engine_makes_it_void(package: str, player: Player, tmp_path: Path) -> None:
    box = a_box(2)
    parts = key_parts(box, PACKAGES | {package: "0.0"})
    old = a_verdict(box).model_copy(update={"parts": parts, "key": key_of(parts)})
    write_verdict(old, box, tmp_path / "state")
    found = look_up(box, player(), tmp_path / "state")
    assert found.verdict is None
    assert f"{package} was 0.0, is {PACKAGES[package]}" in found.why_not


def test_parts_that_do_not_make_the_key_are_not_believed(player: Player, tmp_path: Path) -> None:
    box = a_box(2)
    forged = a_verdict(box).model_copy(update={"key": "0" * 64})
    write_verdict(forged, box, tmp_path / "state")
    assert look_up(box, player(), tmp_path / "state").verdict is None


def test_other_cards_have_a_file_of_their_own(player: Player, tmp_path: Path) -> None:
    two, three = a_box(2), a_box(3)
    write_verdict(a_verdict(two), two, tmp_path)
    assert "never checked" in look_up(three, player(), tmp_path).why_not
    assert "no cards" in look_up(Box(source="a test"), player(), tmp_path).why_not


def test_what_is_unknown_is_part_of_the_key() -> None:
    known, unknown = a_box(2), a_box(2, host=Host())
    assert key_parts(unknown, PACKAGES)["driver"] == "unknown"
    assert key_of(key_parts(known, PACKAGES)) != key_of(key_parts(unknown, PACKAGES))


def test_the_file_is_private_and_whole(tmp_path: Path) -> None:
    box = a_box(2)
    old = os.umask(0)
    try:
        file = write_verdict(a_verdict(box), box, tmp_path / "state")
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_write_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = a_box(2)
    file = write_verdict(a_verdict(box), box, tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rig.p2p.store.os.fsync", full)
    with pytest.raises(RigError, match="No space"):
        write_verdict(a_verdict(box).model_copy(update={"results": ()}), box, tmp_path)
    assert read_verdict(file) == a_verdict(box)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@contextmanager
def closed_to_us(folder: Path) -> Iterator[None]:
    """As after `sudo -E ./rig p2p`: the folder is there, and this user may not look into it."""
    folder.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.seteuid(65534)
    else:
        folder.chmod(0)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o700)


def test_a_folder_that_is_closed_to_us_is_said(tmp_path: Path) -> None:
    box = a_box(2)
    folder = tmp_path / "state"
    with closed_to_us(folder):
        found = look_up(box, Path(sys.executable), folder)
        assert found.verdict is None and "cannot be read" in found.why_not
        with pytest.raises(RigError, match="cannot be kept: Permission denied"), only_one(folder):
            pass
        with pytest.raises(RigError, match="cannot be kept: Permission denied"):
            write_verdict(a_verdict(box), box, folder)


@pytest.mark.parametrize("text", ["", "{", '{"key": "x"}', "\x00\xff"])
def test_a_damaged_file_is_no_verdict_and_no_crash(
    text: str, player: Player, tmp_path: Path
) -> None:
    box = a_box(2)
    verdict_file(box, tmp_path).write_bytes(text.encode("latin-1"))
    found = look_up(box, player(), tmp_path)
    assert found.verdict is None
    assert "stored verdict" in found.why_not


def test_a_file_that_others_may_write_is_not_believed(player: Player, tmp_path: Path) -> None:
    box = a_box(2)
    write_verdict(a_verdict(box), box, tmp_path).chmod(0o666)
    assert "not this user's alone" in look_up(box, player(), tmp_path).why_not


def test_the_users_state_folder_is_used(
    player: Player, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    box = a_box(2)
    assert find_verdict(box, player()) is None
    file = write_verdict(a_verdict(box), box)
    assert tmp_path / "xdg" in file.parents
    assert find_verdict(box, player()) == a_verdict(box)


def test_a_python_that_is_none(tmp_path: Path) -> None:
    box = a_box(2)
    write_verdict(a_verdict(box), box, tmp_path)
    found = look_up(box, tmp_path / "no-python", tmp_path)
    assert found.verdict is None and "no working Python" in found.why_not
    with pytest.raises(RigError, match="no working Python"):
        packages_of(tmp_path / "no-python")


def test_packages_of_this_python() -> None:
    assert packages_of(Path(sys.executable)) == dict.fromkeys(PACKAGES, "none")


def test_two_checks_at_once_are_refused(tmp_path: Path) -> None:
    refused = pytest.raises(RigError, match="another check runs")
    with only_one(tmp_path), refused, only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass


def test_renewed_replaces_only_what_was_run_again() -> None:
    box = a_box(2)
    other = Result(way="nccl-p2p", cards=(0, 1), size_bytes=4096, outcome="passed")
    both = a_verdict(box).renewed((other,), "later")
    assert both.proven("copy", (0, 1)) and both.proven("nccl-p2p", (1, 0))
    hang = other.model_copy(update={"outcome": "hang"})
    after = both.renewed((hang,), "later still")
    assert after.proven("copy", (0, 1)) and not after.proven("nccl-p2p", (0, 1))
    assert after.made_at == "later still"
    assert not after.proven("custom", (0, 1))


def test_a_copy_is_proven_by_both_directions() -> None:
    whole = a_verdict(a_box(2))
    assert whole.proven("copy", (0, 1)) and whole.proven("copy", (1, 0))
    half = whole.model_copy(update={"results": whole.results[:1]})
    assert not half.proven("copy", (0, 1))
    bad = whole.results[1].model_copy(update={"outcome": "not run"})
    assert not whole.renewed((bad,), "later").proven("copy", (0, 1))


def test_changes_names_parts_that_come_and_go() -> None:
    assert changes({"a": "1"}, {"b": "2"}) == ["a was 1, is not there", "b was not there, is 2"]
