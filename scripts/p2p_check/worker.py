"""One rank: `python -m p2p_check.worker SPEC.json RANK`.

Says "ready" and which cards it sees, then "begin" and "done" for each size. Ends with status 0
when it could say everything, right or wrong; an error is said and ends it with status 1.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from p2p_check.say import Sayer

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Be killed when the process that started this one ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main() -> int:
    spec_file, rank, parent = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    end_with(parent)
    say = Sayer(spec_file.with_name(f"rank{rank}.jsonl"))
    say("start", pid=os.getpid())
    try:
        work(spec_file, rank, say)
    except Exception as error:
        traceback.print_exc()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        say("error", detail=text[:500])
        return 1
    say("end")
    return 0


def work(spec_file: Path, rank: int, say: Sayer) -> None:
    """Import torch, show the cards, do the case."""
    import torch

    from p2p_check.copies import run_copies
    from p2p_check.faults import Fault, Hook
    from p2p_check.reduces import run_reduces
    from p2p_check.spec import Spec

    torch.set_num_threads(1)
    spec = Spec.read(spec_file)
    if spec.fault and spec.device != "cpu":
        raise ValueError("faults are for rehearsals")
    say("ready", bus_ids=_bus_ids(torch) if spec.device == "cuda" else [])
    hook = Hook(Fault.read(spec.fault) if spec.fault else None, rank)
    if spec.way.startswith("copy"):
        run_copies(spec, say, hook)
    else:
        run_reduces(spec, rank, say, hook)


def _bus_ids(torch: Any) -> list[str]:
    """The cards as CUDA shows them to this process, as "0000:01:00.0"."""
    found = []
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        found.append(f"{card.pci_domain_id:04x}:{card.pci_bus_id:02x}:{card.pci_device_id:02x}.0")
    return found


if __name__ == "__main__":
    sys.exit(main())
