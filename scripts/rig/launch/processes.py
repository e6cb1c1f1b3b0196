"""Processes as /proc shows them: who descends from whom, and who is still the same one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process.

    Args:
        pid: its number, which the system gives to another one later.
        started: clock ticks from boot to its start; with the pid it names one process for good.
        parent: its parent's pid.
        state: one letter, "Z" for one that has ended and waits to be reaped.
        name: the short name, up to 15 bytes.
    """

    pid: int
    started: int
    parent: int
    state: str
    name: str

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """One process, or None if there is none of this number."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may itself hold parentheses and spaces.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(
        pid=pid,
        started=int(fields[19]),
        parent=int(fields[1]),
        state=fields[0],
        name=head.partition("(")[2],
    )


def all_pids() -> list[int]:
    """The number of every process that this one can see."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def all_processes() -> list[Process]:
    """Every process that this one can see."""
    found = (read_process(pid) for pid in all_pids())
    return [process for process in found if process is not None]


def descendants(root: int) -> list[Process]:
    """The processes below a pid, without itself, zombies included.

    A process whose parent ended hangs below the nearest subreaper. So below a subreaper this is
    everything that was ever started there and has not ended: daemons too.
    """
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [process.pid for process in below]
    return found


def is_alive(pid: int, started: int) -> bool:
    """Whether exactly this process runs: the pid alone may be another's by now."""
    process = read_process(pid)
    return process is not None and process.started == started and process.alive


def marked(variable: str, value: str) -> list[Process]:
    """The processes that were started with `variable=value` in their environment.

    A program that rewrites its title may overwrite the place where Linux shows the environment,
    so this finds some processes, not all.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for process in all_processes():
        try:
            environment = (PROC / str(process.pid) / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(process)
    return found


def open_files(pid: int) -> list[tuple[Path, str]]:
    """A process's open descriptors, as (its link in /proc, what it points at)."""
    found: list[tuple[Path, str]] = []
    try:
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append((descriptor, str(descriptor.readlink())))
    except OSError:
        pass  # it has ended, or is another user's
    return found


def title(pid: int) -> str:
    """The command line as the process shows it now, on one line; "" if it is gone."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(raw.replace(b"\0", b" ").decode(errors="replace").split())


def run_bounded(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program that asks a driver, and capture what it says; its status is not judged.

    Not by subprocess.run: when the time is up that waits for the program's end, and one that a
    driver holds does not end, whatever kills it.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time; it was killed, and may live on.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    try:
        said, complaint = process.communicate(timeout=timeout_s)
    except BaseException:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        raise
    return subprocess.CompletedProcess(command, process.returncode, said, complaint)


def memory_bytes(pids: Iterable[int]) -> int:
    """The memory of some processes in bytes: pages shared by n processes count 1/n (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def boot_id() -> str:
    """Another one after each boot: pids and shared memory of an earlier boot mean nothing."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Names the numbering that this process's pids belong to (containers have their own)."""
    return str((PROC / "self/ns/pid").readlink())
