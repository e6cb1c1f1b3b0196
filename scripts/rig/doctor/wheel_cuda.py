"""Which CUDA the torch of a pinned release was built with, and what an environment holds.

torch is not imported: that takes seconds, and these tools run without it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from rig.doctor.context import Engine, Wheel

# torch -> CUDA of its wheel on the index, from the wheel's own metadata: Requires-Dist
# `cuda-toolkit[...]==13.0.3` (torch 2.14.0 and 2.13.0, manylinux_2_28_x86_64).
CUDA_OF_TORCH = {"2.14.0": (13, 0), "2.13.0": (13, 0)}

# Runs in the engine's interpreter: finds packages without importing them. A build names its CUDA
# in torch/version.py (`cuda: Optional[str] = '13.0'`, None for a CPU build).
_ASK = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.metadata, importlib.util, json, os
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
spec = importlib.util.find_spec("torch")
text = None
if spec is not None and spec.origin:
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
            text = file.read()
    except OSError:
        pass
print(json.dumps({"python": sys.executable, "vllm": version("vllm"), "ray": version("ray"),
                  "torch": version("torch"), "text": text}))
"""
_LINE = re.compile(r"^cuda\b[^=\n]*=\s*(?:None|['\"](\d+)\.(\d+)[^'\"]*['\"])", re.MULTILINE)


def cuda_in_version_file(text: str) -> tuple[bool, tuple[int, int] | None]:
    """What torch/version.py says: (it says something, the CUDA version or None for a CPU build)."""
    found = _LINE.search(text)
    if found is None:
        return False, None
    return True, (int(found[1]), int(found[2])) if found[1] else None


def wheel_of_pin(torch: str, release: str) -> Wheel | None:
    """The wheel that a pinned release asks for; None when its CUDA is not in the table above."""
    cuda = CUDA_OF_TORCH.get(torch)
    if cuda is None:
        return None
    return Wheel(torch=torch, cuda=cuda, source=f"what the pinned vLLM {release} asks for")


def ask_environment(python: Path, timeout_s: float = 20.0) -> tuple[Engine | None, Wheel | None]:
    """The engine and the torch beside an interpreter (about 50 ms).

    Returns:
        (None, None) when the interpreter does not run or has no vLLM.
    """
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None, None
    if said["vllm"] is None:
        return None, None
    engine = Engine(python=said["python"], vllm=said["vllm"], ray=said["ray"])
    if said["torch"] is None or said["text"] is None:
        return engine, None
    told, cuda = cuda_in_version_file(said["text"])
    if not told:
        return engine, None
    source = f"installed beside {said['python']}"
    return engine, Wheel(torch=said["torch"], cuda=cuda, source=source)
