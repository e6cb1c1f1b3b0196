"""Faults on request, so that tests see each of them found and named. Rehearsals only.

A fault is written `KIND[:rank=R][:size=BYTES][:iteration=I]`, such as `stale:rank=1:iteration=2`.
What is not said holds for all ranks (for a copy: the only one), sizes and iterations.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import shared_memory

import torch

_block: shared_memory.SharedMemory | None = None  # held open until this process is killed
DATA = ("wrong", "zeros", "stale", "short", "shifted", "swapped", "overrun")
PROCESS = ("hang", "crash", "exit", "error", "litter", "deaf")


class UnknownFaultError(ValueError):
    """The text names no fault."""


@dataclass(frozen=True)
class Fault:
    """One fault; `None` means any."""

    kind: str
    rank: int | None = None
    size: int | None = None
    iteration: int | None = None

    @classmethod
    def read(cls, text: str) -> Fault:
        kind, *rest = text.split(":")
        pairs = dict(part.partition("=")[::2] for part in rest)
        if kind not in DATA + PROCESS or set(pairs) - {"rank", "size", "iteration"}:
            raise UnknownFaultError(f"no such fault: {text}")
        return cls(kind, **{name: int(value) for name, value in pairs.items()})


class Hook:
    """What a check calls around each transfer. Without a fault it does nothing."""

    def __init__(self, fault: Fault | None, rank: int) -> None:
        self._fault = fault
        self._rank = rank

    def strikes(self, size: int, iteration: int) -> Fault | None:
        """The fault, if it is meant for this transfer."""
        fault = self._fault
        if fault is None:
            return None
        asked = ((fault.rank, self._rank), (fault.size, size), (fault.iteration, iteration))
        return fault if all(want is None or want == have for want, have in asked) else None

    def before(self, size: int, iteration: int) -> None:
        """Called when everything is ready to be sent."""
        fault = self.strikes(size, iteration)
        if fault is None or fault.kind not in PROCESS:
            return
        if fault.kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault.kind == "exit":
            os._exit(3)
        if fault.kind == "error":
            raise RuntimeError("a fault was asked for")
        if fault.kind == "litter":
            _litter()
        if fault.kind == "deaf":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(60)

    def after(
        self,
        size: int,
        iteration: int,
        arrived: torch.Tensor,
        before: torch.Tensor,
        stale: torch.Tensor | None,
        foreign: torch.Tensor,
        beyond: torch.Tensor | None,
    ) -> None:
        """Called with what arrived, in place; and with what the fault may put there instead."""
        fault = self.strikes(size, iteration)
        if fault is None or fault.kind not in DATA:
            return
        if fault.kind == "wrong":
            arrived[arrived.numel() // 2] += 1
        elif fault.kind == "zeros":
            arrived.zero_()
        elif fault.kind == "stale" and stale is not None:
            arrived.copy_(stale)
        elif fault.kind == "short":
            quarter = arrived.numel() // 4
            arrived[-quarter:] = before[-quarter:]
        elif fault.kind == "shifted":
            arrived.copy_(arrived.roll(1))
        elif fault.kind == "swapped":
            arrived.copy_(foreign)
        elif fault.kind == "overrun":
            if beyond is None:
                raise ValueError("an all-reduce has nothing beyond its buffer to overrun")
            beyond[0] += 1


def _litter() -> None:
    """Hold shared memory and a process that outlives this one, as NCCL and vLLM may."""
    global _block
    _block = shared_memory.SharedMemory(create=True, size=4096)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
