"""The import hook, in fresh interpreters with stand-ins for torch and torchvision.

The stand-in of torchvision does what the real one does: its `__init__` imports the module that
loads the compiled part, then registers a fake kernel, which fails if the schema is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rig.rehearsal import torchvision_shim
from rig.rehearsal.environment import install_shim, site_packages

TORCH = """
    import types
    defined = []
    version = types.SimpleNamespace(cuda={cuda!r})
    class Library:
        def __init__(self, namespace, kind):
            assert (namespace, kind) == ("torchvision", "DEF")
        def define(self, schema):
            defined.append(schema.partition("(")[0])
    library = types.SimpleNamespace(Library=Library)
"""
TORCHVISION = """
    import torch
    from torchvision import extension
    for op in ("nms", "qnms"):
        if op not in torch.defined and not extension._has_ops():
            raise RuntimeError(f"operator torchvision::{op} does not exist")
"""
EXTENSION = """
    import torch
    def _has_ops():
        return {loads}
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A bare virtual environment with the shim, made as the engine's is."""
    folder = tmp_path / "an environment"
    command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    install_shim(folder)
    return folder


def stand_ins(environment: Path, cuda: str | None, loads: bool) -> None:
    packages = site_packages(environment)
    for name, text in (
        ("torch", TORCH.format(cuda=cuda)),
        ("torchvision", TORCHVISION),
        ("torchvision/extension", EXTENSION.format(loads=loads)),
    ):
        is_package = name != "torchvision/extension"
        path = packages / (f"{name}/__init__.py" if is_package else f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))


def run(environment: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(environment / "bin" / "python"), *options, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


IMPORT_BOTH = "import torchvision, torch; print(torch.defined)"


def test_beside_a_torch_without_cuda_torchvision_imports(environment: Path) -> None:
    stand_ins(environment, cuda=None, loads=False)
    done = run(environment, IMPORT_BOTH)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['nms', 'qnms']\n"


def test_without_the_shim_it_does_not(environment: Path) -> None:
    stand_ins(environment, cuda=None, loads=False)
    for path in site_packages(environment).glob("rig_torchvision_shim.*"):
        path.unlink()
    done = run(environment, IMPORT_BOTH)
    assert done.returncode != 0
    assert "operator torchvision::nms does not exist" in done.stderr


def test_a_torchvision_that_loads_is_left_alone(environment: Path) -> None:
    # Its compiled part has defined the schemas: a second definition would raise.
    stand_ins(environment, cuda=None, loads=True)
    done = run(environment, IMPORT_BOTH)
    assert done.stdout == "[]\n", done.stderr


def test_with_cuda_a_torchvision_that_does_not_load_stays_an_error(environment: Path) -> None:
    stand_ins(environment, cuda="13.0", loads=False)
    done = run(environment, IMPORT_BOTH)
    assert done.returncode != 0
    assert "operator torchvision::nms does not exist" in done.stderr


def test_torch_is_not_imported_when_the_interpreter_starts(environment: Path) -> None:
    stand_ins(environment, cuda=None, loads=False)
    done = run(
        environment,
        """
        import sys, importlib.util
        print("rig_torchvision_shim" in sys.modules, "torch" in sys.modules)
        importlib.util.find_spec("torchvision")
        print("torch" in sys.modules)
        """,
    )
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


def test_child_processes_have_it_too(environment: Path) -> None:
    stand_ins(environment, cuda=None, loads=False)
    done = run(
        environment,
        f"""
        import subprocess, sys
        print(subprocess.check_output([sys.executable, "-c", {IMPORT_BOTH!r}], text=True))
        """,
    )
    assert "['nms', 'qnms']" in done.stdout, done.stderr


def test_isolated_mode_has_it_too(environment: Path) -> None:
    stand_ins(environment, cuda=None, loads=False)
    assert run(environment, IMPORT_BOTH, "-I").returncode == 0


def test_an_environment_without_torchvision_is_not_disturbed(environment: Path) -> None:
    done = run(environment, "import torchvision")
    assert "No module named 'torchvision'" in done.stderr


def test_installing_twice_adds_one_finder(environment: Path) -> None:
    done = run(
        environment,
        """
        import sys, rig_torchvision_shim as shim
        shim.install()
        print(sum(type(finder).__name__ == "_Finder" for finder in sys.meta_path))
        """,
    )
    assert done.stdout == "1\n", done.stderr


def test_the_shim_stands_alone(tmp_path: Path) -> None:
    # It runs where the package `rig` is not: it must import nothing of it.
    shutil.copy(torchvision_shim.__file__, tmp_path / "alone.py")
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})"]
    command[-1] += "; import alone; print('torch' in sys.modules)"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
