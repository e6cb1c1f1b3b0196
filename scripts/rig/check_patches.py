"""`rig check-patches`: vLLM's own ruff and mypy settings on every file that a patch touches."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.series.applied import AppliedTree

_PRE_COMMIT = Path(".pre-commit-config.yaml")
_MYPY_HOOK = Path("tools/pre_commit/mypy.py")


def check_patches(tree: AppliedTree) -> str:
    """Check the touched Python files of one applied tree; returns a line that says what ran.

    Raises:
        RigError: ruff or mypy complains; shows what they said.
    """
    touched = [f.path for f in tree.changed if f.status != "D" and f.path.endswith(".py")]
    version = tree.pin.version
    if not touched:
        return f"vLLM {version}: no patch touches a Python file"
    _require_their_ruff(tree.folder)
    python = [sys.executable, "-P", "-m"]  # not what lies in the tree
    _run(tree.folder, [*python, "ruff", "check", "--no-cache", *touched], version)
    _run(tree.folder, [*python, "ruff", "format", "--no-cache", "--check", *touched], version)
    cache = tree.folder.parent / f".mypy-cache-{version}"
    # As vLLM's hook does: its package with imports followed, its tests without.
    untyped = not_typed_by_vllm(tree.folder)
    for start, follow in (("vllm/", "silent"), ("tests/", "skip")):
        typed = [p for p in touched if p.startswith(start) and not untyped.match(p)]
        if typed:
            command = [*python, "mypy", "--follow-imports", follow, "--cache-dir", str(cache)]
            _run(tree.folder, [*command, *typed], version)
    left_out = [p for p in touched if untyped.match(p)]
    return (
        f"vLLM {version}: ruff and mypy pass on the {len(touched)} touched files, "
        "with vLLM's own settings"
    ) + (f" (mypy leaves out {', '.join(left_out)}, as vLLM does)" if left_out else "")


def not_typed_by_vllm(folder: Path) -> re.Pattern[str]:
    """Paths that vLLM's own mypy hook leaves out, since they do not pass as released."""
    hook = folder / _MYPY_HOOK
    tree = ast.parse(hook.read_text("utf-8") if hook.is_file() else "")
    patterns: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXCLUDE":
            patterns += ast.literal_eval(node.value)
    return re.compile("|".join(f"(?:{p})" for p in patterns) or r"(?!)")


def _require_their_ruff(folder: Path) -> None:
    """The same ruff as vLLM's own hook, or its verdict would not be vLLM's."""
    hooks = folder / _PRE_COMMIT
    text = hooks.read_text("utf-8") if hooks.is_file() else ""
    found = re.search(r"ruff-pre-commit\s+rev: v([0-9.]+)", text)
    theirs, ours = found[1] if found else "no ruff", installed_version("ruff")
    if theirs != ours:
        console.print(f"note: vLLM's own hook pins {theirs}, this is ruff {ours}")


def _run(folder: Path, command: Sequence[str], version: str) -> None:
    env = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "MYPYPATH"}}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(
            f"{command[3]} complains about a file that a patch touches",
            where=f"vLLM {version}, build/{folder.name}",
            detail=(done.stdout + done.stderr)[-4000:],
            next_step="correct it in a commit there and `make refresh`",
        )
