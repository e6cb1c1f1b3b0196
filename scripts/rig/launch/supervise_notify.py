"""The sd_notify protocol: a datagram to the socket that $NOTIFY_SOCKET names (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(message: str, inherited: Mapping[str, str] | None = None) -> bool:
    """Send assignments such as `READY=1`, one a line, to the supervisor.

    Returns:
        Whether one was told. A supervisor that does not listen never stops a server.
    """
    address = (os.environ if inherited is None else inherited).get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1.0)
            sender.sendto(message.encode(), address)
    except OSError:
        return False
    return True


def watchdog_interval_s(inherited: Mapping[str, str] | None = None) -> float | None:
    """Seconds between heartbeats: half of what the supervisor allows; None if it wants none."""
    inherited = os.environ if inherited is None else inherited
    try:
        allowed = int(inherited.get("WATCHDOG_USEC", "0"))
        wanted_of = int(inherited.get("WATCHDOG_PID", str(os.getpid())))
    except ValueError:
        return None
    if allowed <= 0 or wanted_of != os.getpid():
        return None
    return allowed / 2e6
