"""The listening sockets of our own processes, and whether other machines can reach them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from rig.launch.processes import PROC, all_pids, open_files, title

_LISTEN = "0A"


@dataclass(frozen=True)
class ListeningSocket:
    """One TCP socket that accepts connections."""

    address: str
    port: int
    pid: int
    program: str

    @property
    def on_loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback

    def __str__(self) -> str:
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{shown}:{self.port} (pid {self.pid}, {self.program})"


def _address(text: str) -> str:
    # Groups of four bytes, each as the machine stores a number: little end first on x86 and ARM.
    raw = bytes.fromhex(text)
    groups = (raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    address = ipaddress.ip_address(b"".join(groups))
    # An IPv4 address in an IPv6 socket is the IPv4 address.
    return str(getattr(address, "ipv4_mapped", None) or address)


def listeners_by_inode() -> dict[int, tuple[str, int]]:
    """Address and port of every listening TCP socket in this network namespace."""
    found: dict[int, tuple[str, int]] = {}
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:  # no IPv6 here
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, _, port = fields[1].rpartition(":")
                found[int(fields[9])] = (_address(address), int(port, 16))
    return found


def _socket_inodes(pid: int) -> set[int]:
    targets = (target for _, target in open_files(pid))
    return {int(target[8:-1]) for target in targets if target.startswith("socket:[")}


def listening(pids: Iterable[int]) -> list[ListeningSocket]:
    """The listening sockets of these processes, one entry per socket, by port."""
    listeners = listeners_by_inode()
    found: dict[int, ListeningSocket] = {}
    for pid in pids:
        for inode in _socket_inodes(pid) & listeners.keys():
            address, port = listeners[inode]
            found.setdefault(inode, ListeningSocket(address, port, pid, title(pid)[:60]))
    return sorted(found.values(), key=lambda socket: (socket.port, socket.address))


def others_on_port(port: int, pids: Iterable[int]) -> list[tuple[str, int]]:
    """Listening sockets on a port that belong to none of these processes.

    With several API servers vLLM opens its port so that another program of the same user can
    open it too (SO_REUSEPORT): requests would then go to either one.
    """
    ours: set[int] = set()
    for pid in pids:
        ours |= _socket_inodes(pid)
    return [
        (address, number)
        for inode, (address, number) in listeners_by_inode().items()
        if number == port and inode not in ours
    ]


def holders_of_port(port: int) -> list[str]:
    """Who listens on a port, as far as this user may know."""
    wanted = {inode for inode, (_, number) in listeners_by_inode().items() if number == port}
    return [f"pid {pid} ({title(pid)[:60]})" for pid in all_pids() if _socket_inodes(pid) & wanted]


def unexpected(
    sockets: Iterable[ListeningSocket], server_port: int, store_ports: Iterable[int]
) -> tuple[list[ListeningSocket], list[ListeningSocket]]:
    """Split what is not on loopback into (known to be so, unexpected).

    Known: the server's own port, when the user asked for another address, and the store through
    which torch's ranks find each other, where it may listen on all interfaces.

    Args:
        sockets: what our processes listen on.
        server_port: the server's port; its address is the user's choice.
        store_ports: the ports that the engine's log names as its ranks' meeting point, if that
            is known to be open to others.
    """
    known_ports = {server_port, *store_ports}
    open_ones = [socket for socket in sockets if not socket.on_loopback]
    known = [socket for socket in open_ones if socket.port in known_ports]
    return known, [socket for socket in open_ones if socket.port not in known_ports]
