"""All-reduce over the ranks of a case, checked value by value on each of them.

The summands are small whole numbers, so the sum is exact whatever the order of the additions, and
each rank can say what it must be. Each iteration has new summands.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from p2p_check.faults import Hook
from p2p_check.pattern import diagnose, salt, summands
from p2p_check.say import Sayer
from p2p_check.spec import Spec
from p2p_check.transports import RefusedError, Transport, open_transport

_TIMED_BYTES = 1 << 28
_TIMED_MOST = 100


class Shares:
    """What each rank adds, and what must come of it."""

    def __init__(self, spec: Spec, rank: int, device: torch.device, dtype: torch.dtype) -> None:
        self._seed = spec.seed
        self._ranks = len(spec.cards)
        self._rank = rank
        self._device = device
        self._dtype = dtype

    def of(self, rank: int, count: int, iteration: int) -> torch.Tensor:
        """int32 summands of a rank."""
        return summands(
            count, salt(self._seed, "share", rank, iteration), self._device, self._dtype
        )

    def mine(self, count: int, iteration: int) -> torch.Tensor:
        return self.of(self._rank, count, iteration).to(self._dtype)

    def total(self, count: int, iteration: int) -> torch.Tensor:
        total = self.of(0, count, iteration)
        for rank in range(1, self._ranks):
            total.add_(self.of(rank, count, iteration))
        return total.to(self._dtype)

    def diagnosis(self, got: torch.Tensor, count: int, iteration: int) -> str:
        """What is wrong with a sum, or ""."""
        want = self.total(count, iteration)
        if torch.equal(got, want):
            return ""
        others = {"only what this rank gave itself": self.mine(count, iteration)}
        if iteration:
            others["stale, the sum before"] = self.total(count, iteration - 1)
        for rank in range(self._ranks):
            share = self.of(rank, count, iteration).to(self._dtype)
            others[f"the share of rank {rank} is missing"] = want - share
            if iteration:
                old = self.of(rank, count, iteration - 1).to(self._dtype)
                others[f"the share of rank {rank} is stale"] = want - share + old
        return diagnose(got, want, others)


def run_reduces(spec: Spec, rank: int, say: Sayer, hook: Hook) -> None:
    """Check all sizes on this rank."""
    try:
        transport = open_transport(spec, rank)
    except RefusedError as error:
        say.refused(str(error))
        return
    shares = Shares(spec, rank, transport.device, transport.dtype)
    for size in spec.sizes:
        transport.barrier()
        say("begin", size=size)
        count = size // transport.dtype.itemsize
        wrong = _eager(spec, transport, shares, hook, count) or _replayed(
            spec, transport, shares, count
        )
        rate = _timed(transport, shares, count, size)
        if wrong:
            wrong = f"rank {rank} (card {spec.cards[rank]}): {wrong}"
        say.done(size, wrong, rate)
    transport.barrier()
    say("transport", used=transport.used())
    transport.close()


def _eager(spec: Spec, transport: Transport, shares: Shares, hook: Hook, count: int) -> str:
    size = count * transport.dtype.itemsize
    said = ""
    for iteration in range(spec.iterations):
        mine = shares.mine(count, iteration)
        transport.synchronize()
        hook.before(size, iteration)
        got = transport.all_reduce(mine)
        transport.synchronize()
        if hook.strikes(size, iteration) is not None:
            stale = shares.total(count, iteration - 1) if iteration else None
            foreign = shares.of(0, count, iteration + 1).to(transport.dtype)
            hook.after(size, iteration, got, shares.mine(count, iteration), stale, foreign, None)
        said = said or shares.diagnosis(got, count, iteration)
    return said


def _replayed(spec: Spec, transport: Transport, shares: Shares, count: int) -> str:
    """The same in a CUDA graph, as the engine decodes; "" too where there is no such thing."""
    mine = shares.mine(count, 0)
    replay = transport.captured(mine)
    if replay is None:
        return ""
    said = ""
    for iteration in range(1, spec.iterations):
        mine.copy_(shares.mine(count, iteration))
        transport.synchronize()
        transport.barrier()
        got = replay()
        transport.synchronize()
        found = shares.diagnosis(got, count, iteration)
        said = said or (found and f"in a CUDA graph: {found}")
        transport.barrier()
    return said


def _timed(transport: Transport, shares: Shares, count: int, size: int) -> float:
    """1e9 bytes of the buffer per second (nccl-tests' `algbw`)."""
    mine = shares.mine(count, 0)
    few = transport.device.type == "cpu"
    times = 2 if few else max(2, min(_TIMED_MOST, _TIMED_BYTES // size))
    transport.synchronize()
    dist.barrier(group=transport.cpu_group)
    began = time.perf_counter()
    for _ in range(times):
        transport.all_reduce(mine)
        mine.clamp_(-1, 1)  # in place it would grow without end
    transport.synchronize()
    return times * size / (time.perf_counter() - began) / 1e9
