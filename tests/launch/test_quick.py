"""`serve` is quick to start: what takes long to import is imported by the step that needs it."""

from __future__ import annotations

import subprocess
import sys

SLOW = ("huggingface_hub", "pynvml", "torch", "vllm", "ray", "rig.memory.plan")


def test_the_command_imports_nothing_slow() -> None:
    script = "import json, sys, rig.launch.command; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = done.stdout
    assert '"rig.launch.command"' in loaded
    assert [name for name in SLOW if f'"{name}"' in loaded] == []


def test_a_round_of_the_measurement_takes_the_steps_of_serve() -> None:
    command = [sys.executable, "-m", "rig.launch.overhead", "--one-round", "--rig", "4x3090"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no model was named" in done.stderr
