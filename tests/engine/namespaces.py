"""Two boxes on one machine: two network namespaces joined by a cable that can be cut."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Box:
    """One namespace: its name, its end of the cable, its address there."""

    name: str
    interface: str
    address: str

    def command(self, *words: str) -> list[str]:
        """A command that runs in it."""
        return ["ip", "netns", "exec", self.name, *words]

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in a thread whose sockets are those of the box."""
        found: list[Result] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with Path("/run/netns", self.name).open() as namespace:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns failed")
                found.append(function())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    def cut(self) -> None:
        """Pull the cable out of this box."""
        _ip("-n", self.name, "link", "set", self.interface, "down")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str:
    """Why no namespaces can be made here; "" if they can."""
    if os.getuid() != 0:
        return "two network namespaces need root"
    name = f"rig-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except FileNotFoundError:
        return "the program `ip` (iproute2) is not installed"
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made here: {error.stderr.strip()}"
    return ""


@contextmanager
def two_boxes() -> Iterator[tuple[Box, Box]]:
    """Two boxes with a cable between them."""
    pid = os.getpid()
    boxes = tuple(
        Box(f"rig-{pid}-{end}", f"rig{pid}{end}"[-15:], f"10.77.0.{number}")
        for number, end in enumerate("ab", start=1)
    )
    first, second = boxes
    try:
        for box in boxes:
            _ip("netns", "add", box.name)
        cable = ("link", "add", first.interface, "netns", first.name, "type", "veth")
        _ip(*cable, "peer", "name", second.interface, "netns", second.name)
        for box in boxes:
            _ip("-n", box.name, "address", "add", f"{box.address}/24", "dev", box.interface)
            _ip("-n", box.name, "link", "set", "lo", "up")
            _ip("-n", box.name, "link", "set", box.interface, "up")
        yield first, second
    finally:
        for box in boxes:
            with contextlib.suppress(subprocess.CalledProcessError, OSError):
                _ip("netns", "del", box.name)
