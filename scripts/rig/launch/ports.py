"""TCP ports of this box: is one free, and keep it so until the server has it."""

from __future__ import annotations

import errno
import random
import socket

from rig.errors import RigError
from rig.launch.sockets import holders_of_port

# Below the range that Linux takes outgoing connections' ports from (32768 and up), so that a
# port that is free now is not given away while the engine loads.
_FREE_PORTS = range(20000, 32000)


def _try(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server itself does: a port that only an ended server's closing connections use
        # is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def reserve_port(host: str, port: int) -> socket.socket:
    """Find a port free and keep other launches from finding it so, until the result is closed.

    A bound TCP socket would be in the server's own way, or (with SO_REUSEADDR) in nobody's. So
    launches tell each other by an abstract UNIX socket: it has the scope of a port (the network
    namespace), lies in no folder, and goes with its process.

    Raises:
        RigError: the port is taken or not to be had, or the address is not one of this box.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0vllm-rig-port-{port}")
        _try(host, port)
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise RigError(
                f"{host} is not an address of this box: {error.strerror}",
                where=f"--host {host}",
                next_step="give one that it has (see `ip address`), or leave --host out",
            ) from error
        if error.errno != errno.EADDRINUSE:
            privileged = error.errno == errno.EACCES
            raise RigError(
                f"cannot listen on port {port} of {host}: {error.strerror}",
                next_step=f"ports below 1024 are root's: --port {find_free_port()}"
                if privileged
                else "another address of this box: --host (see `ip address`)",
            ) from error
        step = f"stop what uses it, or take another one: --port {find_free_port()}"
        holders = ", ".join(holders_of_port(port))
        raise RigError(
            f"port {port} is not free on {host}: {error.strerror}",
            where=holders or None,
            next_step=step,
        ) from error
    return claim


def find_free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses at this moment."""
    for port in random.sample(_FREE_PORTS, 200):
        try:
            _try(host, port)
        except OSError:
            continue
        return port
    raise RigError(f"no free port was found on {host}", where=_FREE_PORTS)
