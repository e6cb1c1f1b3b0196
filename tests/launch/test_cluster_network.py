"""Which addresses a cluster may use, and which files hold its token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.cluster import (
    parse_head,
)
from rig.launch.cluster_network import (
    Interface,
    address_towards,
    choose,
    interfaces,
    require_listener,
)
from rig.launch.cluster_token import check_token_file, make_token_file

FOUND = [
    Interface("lo", "127.0.0.1"),
    Interface("eth0", "10.0.0.1"),
    Interface("ib0", "10.1.0.1"),
    Interface("ib0", "10.1.0.2"),
]


@pytest.mark.parametrize(
    "advertise, interface, chosen",
    [
        ("10.0.0.1", None, "eth0 10.0.0.1"),
        (None, "eth0", "eth0 10.0.0.1"),
        ("10.1.0.2", None, "ib0 10.1.0.2"),
    ],
)
def test_the_address_that_was_named(
    advertise: str | None, interface: str | None, chosen: str
) -> None:
    assert str(choose(advertise, interface, FOUND)) == chosen


@pytest.mark.parametrize(
    "advertise, interface, said",
    [
        (None, None, "say which address"),
        ("10.0.0.1", "eth0", "say which address"),
        ("0.0.0.0", None, "is every interface"),
        ("::", None, "is every interface"),
        ("127.0.0.1", None, "loopback"),
        (None, "lo", "loopback"),
        (None, "wlan0", "no such interface"),
        (None, "ib0", "more than one address"),
        ("10.9.9.9", None, "not an IPv4 address of this box"),
        ("box-a", None, "takes an IPv4 address"),
        ("fe80::1", None, "not an IPv4 address of this box"),
    ],
)
def test_addresses_that_will_not_do(
    advertise: str | None, interface: str | None, said: str
) -> None:
    with pytest.raises(RigError, match=said) as caught:
        choose(advertise, interface, FOUND)
    step = str(caught.value.next_step)
    assert "10.0.0.1" in step or "--advertise" in step


def test_this_boxs_own_interfaces() -> None:
    assert Interface("lo", "127.0.0.1") in interfaces()
    assert address_towards("127.0.0.1", 9) == "127.0.0.1"


def test_a_head_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(RigError, match=r"no head answers at 127.0.0.1:9: Connection refused"):
        require_listener("127.0.0.1", 9)


@pytest.mark.parametrize(
    "text, head",
    [("10.0.0.1", ("10.0.0.1", 26379)), ("box-a:7000", ("box-a", 7000))],
)
def test_the_address_of_a_head(text: str, head: tuple[str, int]) -> None:
    assert parse_head(text) == head


@pytest.mark.parametrize("text", ["", ":1", "box:port", "box:0", "box:65536", "fe80::1", "a:1:2"])
def test_what_is_no_address_of_a_head(text: str) -> None:
    with pytest.raises(RigError):
        parse_head(text)


def test_a_token_is_made_once_and_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    old = os.umask(0)
    try:
        assert make_token_file(file)
    finally:
        os.umask(old)
    token = file.read_text()
    assert len(token) == 64
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert oct(file.parent.stat().st_mode & 0o777) == "0o700"
    check_token_file(file)
    assert not make_token_file(file)
    assert file.read_text() == token


def test_a_token_that_cannot_be_written_whole_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a token would be refused at each later start, by a text that is for other boxes."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("rig.launch.cluster_token.os.fchmod", full)
        with pytest.raises(RigError, match=r"cannot be written: .*No space"):
            make_token_file(tmp_path / "token")
    assert list(tmp_path.iterdir()) == []
    assert make_token_file(tmp_path / "token")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_token_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    make_token_file(file)
    file.chmod(mode)
    with pytest.raises(RigError, match=rf"others may read the token file \(mode 0{mode:o}\)"):
        check_token_file(file)


def test_a_token_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    make_token_file(file)
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(RigError, match="another user's"):
        check_token_file(file)


@pytest.mark.parametrize("content", ["", "short", "x" * 5000, "two words " * 9])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(RigError, match="does not hold") as caught:
        check_token_file(file)
    assert not content or content not in str(caught.value)


def test_a_link_a_folder_and_nothing_are_no_token_files(tmp_path: Path) -> None:
    make_token_file(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe", "none", "."):
        with pytest.raises(RigError):
            check_token_file(tmp_path / name)
