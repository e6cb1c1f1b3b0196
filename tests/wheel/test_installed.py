"""Judging installations made by pip in a real virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.wheel.installed import check_installation

from .wheel_fabric import Fabric


def pip_install(python: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--disable-pip-version-check", "--no-deps", "--no-index", "--force-reinstall"]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)


class Engine:
    """A virtual environment with a rig build in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def refused(self, says: str, *, full: bool = False) -> str:
        with pytest.raises(RigError, match=says) as caught:
            check_installation(self.python, full=full)
        return str(caught.value)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("installed")
    fabric = Fabric(root / "checkout")
    changes = {"vllm/platforms/cpu.py": b"x = 1\n", "vllm/old.py": None}
    built = fabric.build(fabric.series(changes))
    venv.create(root / "engine", symlinks=True)
    pip_install(root / "engine/bin/python", built.path)
    return root / "engine"


@pytest.fixture
def engine(installed: Path, tmp_path: Path) -> Engine:
    shutil.copytree(installed, tmp_path / "an engine", symlinks=True)
    return Engine(tmp_path / "an engine")


def test_a_whole_installation(engine: Engine) -> None:
    found = check_installation(engine.python)
    assert (found.version, found.checked) == ("1.2.3+rig.1", 2)
    assert found.folder == engine.site
    assert [p.number for p in found.provenance.patches] == ["0101"]
    assert check_installation(engine.python, full=True).checked > 10


def test_nothing_of_the_engine_is_imported(engine: Engine) -> None:
    marker = engine.folder / "imported"
    for name in ("vllm/__init__.py", "torch.py"):
        (engine.site / name).write_text(f"open({str(marker)!r}, 'w')\n")
    check_installation(engine.python)
    assert not marker.exists()
    subprocess.run([engine.python, "-c", "import vllm"], check=True)
    assert marker.exists()


def test_variables_and_the_current_folder_do_not_stand_in(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decoy/vllm").mkdir(parents=True)
    (tmp_path / "decoy/vllm/__init__.py").write_text("")
    monkeypatch.chdir(tmp_path / "decoy")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "decoy"))
    assert check_installation(engine.python).folder == engine.site


@pytest.mark.parametrize("name", ["vllm/platforms/cpu.py", "vllm/_version.py"])
def test_one_flipped_bit_in_a_patched_file(engine: Engine, name: str) -> None:
    data = bytearray((engine.site / name).read_bytes())
    data[0] ^= 1
    (engine.site / name).write_bytes(data)
    text = engine.refused("only partly the rig build")
    assert f"not the patched file: {name}" in text
    assert "--force-reinstall" in text


def test_a_patched_file_that_is_gone(engine: Engine) -> None:
    (engine.site / "vllm/platforms/cpu.py").unlink()
    assert "missing: vllm/platforms/cpu.py" in engine.refused("only partly")


def test_a_removed_file_that_is_back(engine: Engine) -> None:
    (engine.site / "vllm/old.py").write_text("")
    assert "removed by the series, but there: vllm/old.py" in engine.refused("only partly")


def test_other_files_are_checked_on_demand(engine: Engine) -> None:
    (engine.site / "vllm/tool.sh").write_text("#!/bin/sx\n")
    check_installation(engine.python)
    assert "not the installed file: vllm/tool.sh" in engine.refused("only partly", full=True)
    (engine.site / "vllm/_C.abi3.so").unlink()
    assert "missing: vllm/_C.abi3.so" in engine.refused("only partly", full=True)


def test_pip_put_upstream_over_it(engine: Engine, fabric: Fabric) -> None:
    plain = fabric.root / fabric.wheel_name
    fabric.wheel_text = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n\n"
    plain.write_bytes(fabric.wheel_bytes())
    pip_install(engine.python, plain)
    text = engine.refused("vLLM 1.2.3 is installed, but it is not a rig build")
    assert "pip install -U vllm" in text


def test_another_version_lies_over_it(engine: Engine) -> None:
    (info,) = engine.site.glob("*.dist-info")
    metadata = (info / "METADATA").read_text()
    (info / "METADATA").write_text(metadata.replace("1.2.3+rig.1", "1.2.4"))
    engine.refused(r"vLLM 1\.2\.4 lies over the rig build 1\.2\.3\+rig\.1")


def test_two_installations_in_one_environment(engine: Engine) -> None:
    (info,) = engine.site.glob("*.dist-info")
    other = engine.site / "vllm-1.2.4.dist-info"
    shutil.copytree(info, other)
    metadata = (other / "METADATA").read_text()
    (other / "METADATA").write_text(metadata.replace("1.2.3+rig.1", "1.2.4"))
    text = engine.refused("more than once")
    assert "1.2.3+rig.1" in text
    assert "1.2.4" in text


def test_what_is_left_of_another_installation(engine: Engine) -> None:
    left = engine.site / "vllm-1.2.3.dist-info"
    (left / "licenses").mkdir(parents=True)
    assert str(left) in engine.refused("left of another installation", full=True)
    left.rename(engine.site / "vllm-9.dist-info")
    engine.refused("left of another installation")


def test_another_copy_would_be_imported(engine: Engine, tmp_path: Path) -> None:
    copy = tmp_path / "edited"
    shutil.copytree(engine.site / "vllm", copy / "vllm")
    (engine.site / "aaa.pth").write_text(f"import sys; sys.path.insert(0, {str(copy)!r})\n")
    assert str(copy) in engine.refused("would load another copy")


def test_a_package_without_its_first_file(engine: Engine) -> None:
    (engine.site / "vllm/__init__.py").unlink()
    engine.refused(r"no __init__\.py")


def damage_seal(data: str) -> str:
    return data.replace('"0101"', '"0102"')


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (damage_seal, "changed after it was sealed"),
        (lambda data: data[:-20], "cannot be read"),
        (lambda data: "[]", "cannot be read"),
        (lambda data: data.replace('"schema": 1', '"schema": 9'), "form 9"),
    ],
)
def test_a_damaged_provenance_file(engine: Engine, change: Callable[[str], str], says: str) -> None:
    path = engine.site / "vllm/rig_provenance.json"
    path.write_text(change(path.read_text()))
    engine.refused(says)


def test_a_provenance_file_that_is_no_text(engine: Engine) -> None:
    path = engine.site / "vllm/rig_provenance.json"
    data = bytearray(path.read_bytes())
    data[data.index(b"platforms")] ^= 0x80
    path.write_bytes(bytes(data))
    engine.refused("changed after it was sealed")


def test_a_provenance_file_that_is_gone(engine: Engine) -> None:
    (engine.site / "vllm/rig_provenance.json").unlink()
    text = engine.refused("what says which patches it carries is missing")
    assert "--force-reinstall" in text


def test_an_environment_without_vllm(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    text = Engine(tmp_path / "bare").refused("vLLM is not installed")
    assert "make build" in text


def test_interpreters_that_are_none(tmp_path: Path) -> None:
    Engine(tmp_path).refused("cannot be run")
    false = tmp_path / "bin" / "python"
    false.parent.mkdir()
    false.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    false.chmod(0o755)
    assert "broken" in Engine(tmp_path).refused("could not say what is installed")
