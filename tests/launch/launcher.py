"""A launcher of its own process, for tests that kill it: argv is FOLDER PYTHON [WORD].

WORD "fit" makes the check of the installation, before anything is started, take long; "ends"
leaves the block at once, so that it is stopping soon.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rig.launch.plan import ServeOptions
from rig.launch.serve import StopSignal, plan_serve, serving


def main() -> None:
    folder, python, *words = sys.argv[1:]
    options = ServeOptions(
        model="m",
        python=Path(python),
        log_folder=Path(folder),
        ranks=2,
        rehearse=True,
        stop_patience_s=0.2,
    )

    def tell(line: str) -> None:
        print(line, flush=True)

    def check(_: Path) -> None:
        if "fit" in words:
            print("FITTING", flush=True)
            time.sleep(60)

    try:
        with serving(plan_serve(options), check_installation=check, progress=tell):
            print("SERVING", flush=True)
            if "ends" not in words:
                time.sleep(60)
    except StopSignal as stop:
        print(f"STOPPED BY {stop}", flush=True)


main()
