"""The addresses of this box, and which of them other boxes may be told."""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass

from rig.errors import RigError


@dataclass(frozen=True)
class Interface:
    """One IPv4 address of this box, and the network interface that has it."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} {self.address}"


class _Address(ctypes.Structure):  # struct ifaddrs
    pass


_Address._fields_ = [
    ("next", ctypes.POINTER(_Address)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
    ("other", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
]


def interfaces() -> list[Interface]:
    """Every IPv4 address of this box, loopback included, in the kernel's order.

    Raises:
        OSError: the C library cannot say.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Address)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    found: list[Interface] = []
    try:
        entry = first
        while entry:
            one = entry.contents
            if one.address:
                # struct sockaddr_in: family (native order), port, then four bytes of address.
                (family,) = struct.unpack("=H", ctypes.string_at(one.address, 2))
                if family == socket.AF_INET:
                    raw = ctypes.string_at(one.address, 8)[4:8]
                    found.append(Interface(one.name.decode(), socket.inet_ntoa(raw)))
            entry = one.next
    finally:
        libc.freeifaddrs(first)
    return found


def choose(advertise: str | None, interface: str | None, found: list[Interface]) -> Interface:
    """The one that the user named, by address or by interface.

    Raises:
        RigError: none was named, it is not of this box, or no other box can reach it.
    """
    outward = [one for one in found if not ipaddress.ip_address(one.address).is_loopback]
    have = ", ".join(map(str, outward)) or "none but loopback"
    if (advertise is None) == (interface is None):
        raise RigError(
            "say which address the other boxes reach this one by",
            next_step=f"--interface IF or --advertise ADDRESS; this box has: {have}",
        )
    if interface is not None:
        named = [one for one in found if one.name == interface]
        if not named:
            raise RigError(
                "this box has no such interface with an IPv4 address",
                where=interface,
                next_step=f"it has: {have}",
            )
        if len(named) > 1:
            raise RigError(
                "this interface has more than one address",
                where=", ".join(one.address for one in named),
                next_step="say which: --advertise ADDRESS",
            )
        return _reachable(named[0], have)
    assert advertise is not None
    try:
        address = ipaddress.ip_address(advertise)
    except ValueError as error:
        raise RigError(
            "--advertise takes an IPv4 address of this box",
            where=advertise,
            next_step=f"it has: {have}",
        ) from error
    if address.is_unspecified:
        raise RigError(
            f"{advertise} is every interface: say which one",
            next_step=f"this box has: {have}",
        )
    for one in found:
        if one.address == str(address):
            return _reachable(one, have)
    raise RigError(
        "this is not an IPv4 address of this box", where=advertise, next_step=f"it has: {have}"
    )


def _reachable(one: Interface, have: str) -> Interface:
    if ipaddress.ip_address(one.address).is_loopback:
        raise RigError(
            "no other box can reach this one's loopback",
            where=str(one),
            next_step=f"this box has: {have}; on one box use scripts/serve.sh",
        )
    return one


def address_towards(host: str, port: int) -> str:
    """This box's address on the way to another one. Nothing is sent.

    Raises:
        RigError: there is no way.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError as error:
            raise RigError(f"there is no way to {host}: {error.strerror}", where=host) from error
        return str(probe.getsockname()[0])


def require_listener(host: str, port: int, timeout_s: float = 5.0) -> None:
    """Raise RigError, saying what to do, if nothing accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError as error:
        said = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise RigError(
            f"no head answers at {host}:{port}: {said}",
            next_step="start scripts/ray-head.sh there first; between the boxes a firewall must "
            "let every port through",
        ) from error
