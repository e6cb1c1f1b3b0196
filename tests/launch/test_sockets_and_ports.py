"""Who listens, and where from it can be reached."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from rig.errors import RigError
from rig.launch.ports import find_free_port, reserve_port
from rig.launch.sockets import holders_of_port, listening, others_on_port, unexpected


def test_our_sockets_are_found_with_their_reach() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as inside,
        socket.create_server(("0.0.0.0", 0)) as outside,
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as six,
        socket.socket(socket.AF_INET6) as mapped,
    ):
        mapped.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        mapped.bind(("::ffff:127.0.0.1", 0))
        mapped.listen()
        ports = [s.getsockname()[1] for s in (inside, outside, six, mapped)]
        found = {s.port: s for s in listening([os.getpid()])}
        assert [found[port].on_loopback for port in ports] == [True, False, False, True]
        assert found[ports[1]].address == "0.0.0.0"
        assert found[ports[2]].address == "::"
        assert found[ports[3]].address == "127.0.0.1"
        known, unknown = unexpected(found.values(), ports[1], [])
        assert [s.port for s in known] == [ports[1]]
        assert ports[2] in [s.port for s in unknown]
        assert f"pid {os.getpid()}" in holders_of_port(ports[0])[0]
        assert others_on_port(ports[0], [os.getpid()]) == []
        assert others_on_port(ports[0], []) == [("127.0.0.1", ports[0])]


def test_a_reserved_port_is_refused_to_others_and_free_for_the_server() -> None:
    port = find_free_port()
    with reserve_port("127.0.0.1", port):
        with pytest.raises(RigError, match="is not free"):
            reserve_port("127.0.0.1", port).close()
        with socket.create_server(("127.0.0.1", port)) as server:  # the server's own way is free
            assert holders_of_port(port)
            assert server.getsockname()[1] == port
    reserve_port("127.0.0.1", port).close()


def test_an_address_of_another_box_is_refused() -> None:
    with pytest.raises(RigError, match=r"192\.0\.2\.1 is not an address of this box"):
        reserve_port("192.0.2.1", 8000)


@pytest.mark.parametrize(
    "number, step",
    [
        (errno.EACCES, "below 1024"),  # 80 without root
        (errno.EAFNOSUPPORT, "--host"),  # IPv6 where it is switched off
        (errno.EINVAL, "--host"),  # fe80::1, which needs an interface
    ],
)
def test_a_port_that_cannot_be_had_is_not_called_taken(
    monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("rig.launch.ports._try", refuse)
    monkeypatch.setattr("rig.launch.ports.find_free_port", lambda: 23456)
    with pytest.raises(RigError, match="cannot listen on port 80 of ") as caught:
        reserve_port("127.0.0.1", 80)
    assert os.strerror(number) in caught.value.what
    assert step in str(caught.value.next_step)
