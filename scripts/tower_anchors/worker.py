"""A worker: takes architectures from stdin, a line each, and answers each with a line of JSON.

It says what it is when it is ready, answers a "?" with all architectures, and "?NAME" with whether
that one is multimodal. Answers go to what was stdout when it began; whatever else writes there gets
stderr. It ends with its parent, also while it hangs.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import warnings
from typing import Any


def main() -> int:
    """Answer until stdin ends."""
    # PR_SET_PDEATHSIG: a model that hangs would not see that stdin has ended.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    from tests.towers.family import engine_context

    from tower_anchors import catching
    from tower_anchors.recipe import unusable
    from tower_anchors.registry import inspect_in_this_process

    inspect_in_this_process()
    with engine_context():
        import vllm

        said = {"vllm": vllm.__version__, "file": vllm.__file__}
        say(said | {"unusable_recipes": dict(unusable())})
        for line in sys.stdin:
            name = line.strip()
            if name == "?":
                say({"architectures": catching.architectures()})
            elif name.startswith("?"):
                multimodal, why_not = catching.is_multimodal(name[1:])
                say({"multimodal": multimodal, "why_not": why_not})
            else:
                say(catching.catch(name).as_json())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
