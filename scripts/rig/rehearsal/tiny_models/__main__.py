"""Make a tiny model: `python -m rig.rehearsal.tiny_models qwen3-vl FOLDER --seed 7`.

Prints the digest of the folder. Runs in the engine's environment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rig.errors import RigError
from rig.rehearsal.tiny_models import BUILDERS, build


def main() -> int:
    parser = argparse.ArgumentParser(prog="rig.rehearsal.tiny_models", description=__doc__)
    parser.add_argument("architecture", choices=sorted(BUILDERS))
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    try:
        print(build(arguments.architecture, arguments.folder, arguments.seed))
    except RigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
