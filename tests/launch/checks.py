"""What the tests of starting and stopping have in common."""

from __future__ import annotations

from pathlib import Path

from rig.launch.serve import RunningServer


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def nothing(_: Path) -> None:
    return None


def assert_clean(server: RunningServer, runtime: Path, pids: tuple[int, ...]) -> None:
    assert server.stopped is not None
    assert server.stopped.left == ()
    assert pids and not [pid for pid in pids if alive(pid)]
    assert list(runtime.iterdir()) == []
