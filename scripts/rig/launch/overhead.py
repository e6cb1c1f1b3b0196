"""What the launcher costs before it starts Ray and the engine: run by `make bench`.

python -m rig.launch.overhead --rig 4x3090 MODEL --rehearse --python ENGINE_PYTHON

The arguments are those of `serve`. Each round is a process of its own, as a launch is, and takes
every step up to the start; nothing is started.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

ROUNDS = 5
LIMIT_S = 2.0


def seconds_of_one_round(argv: Sequence[str]) -> dict[str, float]:
    """Seconds of importing, of preparing, of processors, and of it all, in a fresh process.

    On a busy machine the processors' seconds say more than the clock's.

    Raises:
        subprocess.CalledProcessError: a step refused.
    """
    command = [sys.executable, "-P", "-m", "rig.launch.overhead", "--one-round", *argv]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    whole = time.perf_counter() - began
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "whole": whole}


def measure(argv: Sequence[str], rounds: int = ROUNDS) -> dict[str, float]:
    """The median over rounds of each part, in seconds; the first round is not counted.

    It may have to ask the engine for its options, which is done once for each build.
    """
    seconds_of_one_round(argv)
    seen = [seconds_of_one_round(argv) for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in seen) for name in seen[0]}


def _one_round(argv: Sequence[str]) -> int:
    began = time.perf_counter()
    import rig.cli_engine  # noqa: F401  (as `./rig serve` does)
    from rig.launch.command import split_command_line
    from rig.launch.engine_environment import require_rig_build
    from rig.launch.refused import Refused
    from rig.launch.steps import Steps

    imported = time.perf_counter()
    steps = Steps(
        split_command_line(argv), tell=lambda _: None, check_installation=require_rig_build
    )
    try:
        steps.prepare()
    except Refused as refused:
        print(refused.error, file=sys.stderr)
        return refused.code
    ready = time.perf_counter()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    print(json.dumps({"import": imported - began, "prepare": ready - imported, "cpu": cpu}))
    return 0


def main() -> int:
    """Print the medians; 1 if they are above the limit."""
    argv = sys.argv[1:]
    if argv[:1] == ["--one-round"]:
        return _one_round(argv[1:])
    for name, seconds in (found := measure(argv)).items():
        print(f"{name:<8} {seconds:.2f} s")
    return int(found["whole"] > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
