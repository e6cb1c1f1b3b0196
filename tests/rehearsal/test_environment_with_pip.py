"""The engine's environment made by the real `venv` and the real pip, of small wheels."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Pin
from rig.rehearsal.environment import engine_environment
from rig.rehearsal.soundness import what_is_wrong

from .conftest import rig_wheel, wheel_of


@pytest.fixture
def only_local_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has pip see a folder of small wheels and nothing else."""
    folder = tmp_path / "small wheels"
    folder.mkdir()
    for name, version in (("torch", "2.13.0"), ("torch", "2.14.0"), ("ray", "2.60.0")):
        wheel_of(folder, name, version)
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    return folder


def seen_by(python: Path, code: str) -> object:
    done = subprocess.run(
        [str(python), "-I", "-c", f"import json; {code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_real_pip_makes_it_and_renews_the_wheel_alone(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path, only_local_wheels: Path
) -> None:
    environment = engine_environment(layout, pin, wheel)
    torch = "from importlib.metadata import version; print(json.dumps(version('torch')))"
    build = "import vllm; print(json.dumps(vllm.build))"
    assert seen_by(environment.python, torch) == "2.13.0"
    assert seen_by(environment.python, build) == 1

    # Renewing needs neither an index nor the wheels that it was made of.
    for small in only_local_wheels.iterdir():
        small.unlink()
    (tmp_path / "next").mkdir()
    same_version = rig_wheel(tmp_path / "next", 1, "build = 2\n")
    assert engine_environment(layout, pin, same_version).folder == environment.folder
    assert seen_by(environment.python, build) == 2


def test_a_package_that_is_not_to_be_had_shows_the_end_of_the_log(
    layout: Layout, pin: Pin, wheel: Path, only_local_wheels: Path
) -> None:
    (only_local_wheels / "ray-2.60.0-py3-none-any.whl").unlink()
    with pytest.raises(RigError) as caught:
        engine_environment(layout, pin, wheel)
    said = str(caught.value)
    assert "Cannot install ray==2.60.0" in said
    assert "engine-0.32.0-cpu.log" in said
    assert "connect to a package index" in said


def test_variables_that_mislead_pip_are_not_passed_on(
    layout: Layout,
    pin: Pin,
    wheel: Path,
    only_local_wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environment = engine_environment(layout, pin, wheel)
    assert (environment.site_packages / "vllm" / "__init__.py").is_file()
    assert not (tmp_path / "elsewhere").exists()


def test_every_damage_is_said_and_mended(
    layout: Layout,
    pin: Pin,
    wheel: Path,
    only_local_wheels: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = engine_environment(layout, pin, wheel)
    version, packages = environment.version, environment.site_packages
    assert what_is_wrong(environment.folder, version) is None
    assert "holds vLLM" in (what_is_wrong(environment.folder, "0.32.0+rig.9.cpu") or "")

    for path, name in (
        (packages / "vllm" / "patched.py", "vllm/patched.py"),
        (packages / "vllm" / "plain.py", "vllm/plain.py"),
        (packages / "torch" / "__init__.py", "torch/__init__.py"),
        (environment.folder / "bin" / "ray", "bin/ray"),
    ):
        kept = path.read_bytes()
        path.unlink()
        assert f"missing: {name}" in (what_is_wrong(environment.folder, version) or "")
        path.write_bytes(kept + b"\n")
        assert name in (what_is_wrong(environment.folder, version) or "")
        path.write_bytes(kept)
        assert what_is_wrong(environment.folder, version) is None

    changed = packages / "vllm" / "patched.py"
    changed.write_text("x = 2\n")
    capsys.readouterr()
    engine_environment(layout, pin, wheel)
    said = "".join(capsys.readouterr().err.split())
    assert "damaged" in said
    assert "notthepatchedfile:vllm/patched.py" in said
    assert "madeanew" in said
    assert changed.read_text() == "x = 1\n"
    engine_environment(layout, pin, wheel)
    assert "damaged" not in capsys.readouterr().err


def test_an_interpreter_that_is_gone_is_said(tmp_path: Path) -> None:
    assert "interpreter" in (what_is_wrong(tmp_path, "0.32.0+rig.1.cpu") or "")
