"""A worker: takes architectures from stdin, a line each, and answers each with a line of JSON.

It says what it is when it is ready, and answers a "?" with all multimodal architectures. Answers
go to what was stdout when it began; whatever else writes there gets stderr.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any


def main() -> int:
    """Answer until stdin ends."""
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

        say({"vllm": vllm.__version__, "unusable_recipes": dict(unusable())})
        for line in sys.stdin:
            name = line.strip()
            if name == "?":
                say(dict(catching.multimodal_architectures()))
            else:
                say(catching.catch(name).as_json())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
