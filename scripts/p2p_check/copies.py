"""Copies from card to card, checked word by word on the card that received them.

torch has no switch for peer access. Where the driver grants it, torch turns it on by itself with
the first copy between two cards; then a plain copy is done by the copy engine straight into the
other card's memory, and a copy from every second word by a kernel that stores there. Both are
checked: the engine's all-reduce is a kernel. Where the driver does not grant it, torch goes
through host memory in silence; that says nothing of peer access, so it is refused here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from p2p_check.faults import Hook
from p2p_check.pattern import diagnose, fill, salt, words
from p2p_check.say import Sayer
from p2p_check.spec import Spec

GUARD = 1024  # words on both sides of the target that nobody may touch
_TIMED_BYTES = 1 << 30
_TIMED_MOST = 200
MEANS = ("by the copy engine", "by a kernel")


class Lane:
    """One direction between two cards: the data to be sent and the place that it must fill."""

    def __init__(self, spec: Spec, source: int, target: int, count: int) -> None:
        self.cards = (spec.cards[source], spec.cards[target])
        self._seed = spec.seed
        self._devices = (spec.device_of(source), spec.device_of(target))
        self._base = torch.empty(2 * count, dtype=torch.int32, device=self._devices[0])
        self._sources = (self._base[:count], self._base[::2])
        room = torch.empty(count + 2 * GUARD, dtype=torch.int32, device=self._devices[1])
        self._room = room
        self.target = room[GUARD : GUARD + count]
        self._streams = []
        if spec.device == "cuda":  # of its own: both ways on the same streams take turns
            self._streams = [torch.cuda.Stream(device) for device in self._devices]

    def _salt(self, iteration: int, means: int, cards: tuple[int, int] | None = None) -> int:
        return salt(self._seed, "copy", cards or self.cards, iteration, means)

    def load(self, iteration: int, means: int) -> None:
        """New data into the source, and other data into the target and around it."""
        fill(self._sources[means], self._salt(iteration, means))
        fill(self._room, salt(self._seed, "empty", self.cards, iteration, means))

    @contextmanager
    def _current(self) -> Iterator[None]:
        with ExitStack() as stack:
            for stream in self._streams:
                stack.enter_context(torch.cuda.stream(stream))
            yield

    def send(self, means: int) -> None:
        """Start the copy; it may go on after the return."""
        with self._current():
            self.target.copy_(self._sources[means], non_blocking=True)

    def strike(self, hook: Hook, size: int, iteration: int, means: int) -> None:
        """Let an injected fault change what arrived."""
        if hook.strikes(size, iteration) is None:
            return
        count, device = self.target.numel(), self._devices[1]
        stale = None
        if iteration:
            stale = words(count, self._salt(iteration - 1, means), device)
        hook.after(
            size,
            iteration,
            self.target,
            self._empty(iteration, means)[GUARD : GUARD + count],
            stale,
            words(count, self._salt(iteration, means, self.cards[::-1]), device),
            self._room[GUARD + count :],
        )

    def _empty(self, iteration: int, means: int) -> torch.Tensor:
        return words(
            self._room.numel(),
            salt(self._seed, "empty", self.cards, iteration, means),
            self._devices[1],
        )

    def verify(self, iteration: int, means: int) -> str:
        """What is wrong with what arrived, or ""."""
        count, device = self.target.numel(), self._devices[1]
        want = words(count, self._salt(iteration, means), device)
        said = ""
        if not torch.equal(self.target, want):
            others = {
                "never written": self._empty(iteration, means)[GUARD : GUARD + count],
                "data of the other direction": words(
                    count, self._salt(iteration, means, self.cards[::-1]), device
                ),
            }
            if iteration:
                others["stale, from the copy before"] = words(
                    count, self._salt(iteration - 1, means), device
                )
            said = diagnose(self.target, want, others)
        empty = self._empty(iteration, means)
        for side in (slice(None, GUARD), slice(GUARD + count, None)):
            if not said and not torch.equal(self._room[side], empty[side]):
                said = "memory beside the target was written"
        if said:
            return f"card {self.cards[0]} to {self.cards[1]}, {MEANS[means]}: {said}"
        return ""


def run_copies(spec: Spec, say: Sayer, hook: Hook) -> None:
    """Check all sizes of one pair: one way, or both at once."""
    ways = [(0, 1), (1, 0)] if spec.way == "copy-both-ways" else [(0, 1)]
    if spec.device == "cuda":
        for source, target in ways:
            if not torch.cuda.can_device_access_peer(source, target):
                say.refused(
                    f"the driver does not let card {spec.cards[source]} reach card "
                    f"{spec.cards[target]}: a copy would go through host memory"
                )
                return
    for size in spec.sizes:
        say("begin", size=size)
        lanes = [Lane(spec, source, target, size // 4) for source, target in ways]
        wrong = ""
        for means in range(len(MEANS)):
            for iteration in range(spec.iterations):
                for lane in lanes:
                    lane.load(iteration, means)
                spec.synchronize()
                hook.before(size, iteration)
                for lane in lanes:
                    lane.send(means)
                spec.synchronize()
                for lane in lanes:
                    lane.strike(hook, size, iteration, means)
                    wrong = wrong or lane.verify(iteration, means)
        rate = _timed(spec, lanes, size)
        for lane in lanes:  # the last of many copies without a pause must be right, too
            wrong = wrong or lane.verify(0, 0)
        say.done(size, wrong, rate)


def _timed(spec: Spec, lanes: list[Lane], size: int) -> float:
    """1e9 bytes per second, both ways together: plain copies after the checks warmed them up."""
    for lane in lanes:
        lane.load(0, 0)
    spec.synchronize()
    times = max(2, min(_TIMED_MOST, _TIMED_BYTES // size)) if spec.device == "cuda" else 2
    began = time.perf_counter()
    for _ in range(times):
        for lane in lanes:
            lane.send(0)
    spec.synchronize()
    return len(lanes) * times * size / (time.perf_counter() - began) / 1e9
