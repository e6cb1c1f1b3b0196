"""Turn the signals that ask a launch to stop into an exception, once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal(KeyboardInterrupt):
    """A signal asked for the stop. Like Ctrl-C it passes through `except Exception`."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class StopSignals:
    """What the signals do at the moment: raise, then nothing, then hurry the stop."""

    def __init__(self) -> None:
        self._raised = False
        self._stopping = False
        self.on_second: Callable[[], None] | None = None

    def stopping(self) -> None:
        """From here on a signal does not interrupt: it only makes the stop quicker."""
        self._stopping = True

    def __call__(self, number: int, frame: object) -> None:
        if self._stopping:
            if self.on_second is not None:
                self.on_second()
        elif not self._raised:
            self._raised = True
            raise StopSignal(number)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Let SIGINT, SIGTERM and SIGHUP raise `StopSignal` in the block (main thread only).

    A signal that is ignored stays so: `nohup` and background jobs of a shell mean it.
    """
    handler = StopSignals()
    previous: dict[signal.Signals, object] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _STOPPING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    previous[number] = signal.signal(number, handler)
        yield handler
    finally:
        for number, old in previous.items():
            signal.signal(number, old or signal.SIG_DFL)  # type: ignore[arg-type]
