"""`make bench`: what the tools themselves cost, in seconds, against what they may cost."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.launch import overhead

ROUNDS = 5
# The shape of a model that such boxes serve: 32 billion weights, a vision tower, 64 layers.
_MODEL = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 5120,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}


@dataclass(frozen=True)
class Measured:
    """One command: the median of its seconds over rounds, and the most it may take."""

    what: str
    seconds: float
    limit: float

    def __str__(self) -> str:
        verdict = "" if self.seconds <= self.limit else "  TOO SLOW"
        return f"{self.what:<28} {self.seconds:5.2f} s of {self.limit:.0f}{verdict}"


def bench(engine_python: Path | None, rounds: int = ROUNDS) -> list[Measured]:
    """Time the doctor, the plan and, with an engine, the launcher's part of a launch.

    Args:
        engine_python: the interpreter of an environment with a rig build; None leaves the
            launcher out, and says so.
        rounds: how often; the first run of each is not counted.

    Raises:
        RigError: a command that is timed fails.
    """
    measured = []
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "config.json"
        config.write_text(json.dumps(_MODEL))
        # The doctor's answer may be "fail": 1 is no failure of the command.
        doctor = _median(("doctor", "--json"), rounds, (0, 1))
        measured.append(Measured("rig doctor", doctor, 3))
        plan = ("plan", "--rig", "4x3090", "--config", str(config), "--json")
        measured.append(Measured("rig plan", _median(plan, rounds, (0, 1)), 2))
        if engine_python is None:
            console.print("the launcher is left out: no engine's Python was named (--python)")
        else:
            argv = ["--rig", "4x3090", name, "--rehearse", "--python", str(engine_python)]
            argv += ["--no-plan"]
            try:
                seconds = overhead.measure(argv, rounds)["whole"]
            except subprocess.CalledProcessError as error:
                raise RigError(
                    "the launcher refused before the start; it says why above",
                    where=engine_python,
                ) from error
            measured.append(Measured("serve, up to the start", seconds, overhead.LIMIT_S))
    return measured


def _median(arguments: Sequence[str], rounds: int, good: Sequence[int]) -> float:
    command = [sys.executable, "-P", "-m", "rig", *arguments]
    scripts = str(Path(__file__).resolve().parents[1])
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": scripts},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        seconds.append(time.perf_counter() - began)
        if done.returncode not in good:
            raise RigError(
                f"`./rig {arguments[0]}` failed while it was timed",
                detail=done.stderr.decode("utf-8", "replace")[-1500:],
            )
    return statistics.median(seconds[1:])
