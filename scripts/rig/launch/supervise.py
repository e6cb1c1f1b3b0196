"""What a supervisor of services needs of a launch: exit codes, readiness, health, a heartbeat."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rig.console import console
from rig.errors import RigError
from rig.launch.supervise_health import HealthWatch, real_request
from rig.launch.supervise_notify import notify, watchdog_interval_s

# Exit codes of `serve`, `ray-head` and `ray-join` (docs/launch.md).
STOPPED = 0
FAILED = 1  # it did not start, or did not stop as it should
USAGE = 2
UNFIT = 3  # the box: driver, cards, P2P, limits
TOO_LARGE = 4  # the model does not fit
LOST = 5  # it served, and then the engine, a rank, a node or its health was lost


class LostWhileServing(RigError):
    """Something ended by itself after the server had been healthy."""


def exit_code(error: RigError) -> int:
    """The exit code for an error: LOST after the server had been healthy, else FAILED."""
    return LOST if isinstance(error, LostWhileServing) else FAILED


def status(line: str) -> None:
    """Say one line in the supervisor's display (`systemctl status`); nothing without one."""
    notify("STATUS=" + " ".join(line.split()))


class Supervisor:
    """Tells systemd that the server is ready and alive, and asks it for a real token at times.

    A heartbeat is sent from `tick`: a launcher that hangs sends none, and systemd's watchdog acts.
    It says nothing of the server's health, which has its own count and its own exit code.
    """

    def __init__(
        self,
        base_url: str,
        *,
        health_every_s: float | None = None,
        health_failures: int = 3,
        health_timeout_s: float = 60.0,
        api_key: str | None = None,
        ask: Callable[[], None] | None = None,
    ) -> None:
        """Prepare; nothing is sent before the block is entered.

        Args:
            base_url: the server's address, without `/v1`.
            health_every_s: seconds between two requests; None asks for none.
            health_failures: so many failed requests in a row are the end.
            health_timeout_s: seconds that one request may take.
            api_key: what the server wants in `Authorization`.
            ask: in place of a request to the server: returns, or raises RigError.
        """
        self._url = base_url
        self._failures = health_failures
        self._watch: HealthWatch | None = None
        self._said_unasked = False
        if health_every_s is not None:
            question = ask or (lambda: real_request(base_url, health_timeout_s, api_key))
            self._watch = HealthWatch(question, health_every_s)
        self._heartbeat_s = watchdog_interval_s()
        self._next_heartbeat = 0.0

    def __enter__(self) -> Supervisor:
        notify(f"READY=1\nSTATUS=serving at {self._url}")
        if self._watch is not None:
            self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        notify("STOPPING=1\nSTATUS=stopping")
        if self._watch is not None:
            self._watch.stop()

    def tick(self) -> None:
        """Call this often.

        Raises:
            LostWhileServing: as many requests in a row failed as were allowed.
        """
        failed, reason = self._watch.failures if self._watch is not None else (0, "")
        if failed >= self._failures:
            raise LostWhileServing(
                f"the server failed {failed} real requests in a row: {reason}",
                where=self._url,
                next_step="see engine.log; its front (/health) may still say that all is well",
            )
        if self._watch is not None and self._watch.unasked and not self._said_unasked:
            self._said_unasked = True
            line = f"nothing is known of the server's health: {self._watch.unasked}"
            status(line)
            console.print(f"warning: {line}; it is not ended for that", markup=False)
        now = time.monotonic()
        if self._heartbeat_s is not None and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat_s
            notify("WATCHDOG=1")
