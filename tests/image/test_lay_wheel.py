"""The wheel is laid in two parts: what is the release's, and the few files of the series."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rig.wheel.installed import check_installation

from ..wheel.wheel_fabric import CHANGES, COMMA_PATH, Fabric

SERIES = {
    "vllm/platforms/cpu.py",
    COMMA_PATH,
    "vllm/rig/new.py",
    "vllm/_version.py",
    "vllm/rig_provenance.json",
}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-I", "-m", "venv", str(tmp_path / "venv")], check=True)
    return tmp_path / "venv" / "bin" / "python"


def install(python: Path, wheel: Path) -> None:
    pip = [str(python), "-m", "pip", "install", "-q", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)


def release_of(fabric: Fabric) -> Path:
    artifact = fabric.cached_wheel()
    return fabric.layout.downloads / artifact.sha256 / artifact.name


def split(
    python: Path, docker: Path, wheel: Path, changed: Path
) -> subprocess.CompletedProcess[str]:
    command = [str(python), str(docker / "lay_wheel.py"), "split", str(wheel.parent), str(changed)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def parts(changed: Path) -> tuple[set[str], set[str]]:
    """The files of both parts, from site-packages on; the notes left out."""
    found = []
    for part in ("release", "series"):
        files = (p.as_posix() for p in (changed / part).rglob("*") if p.is_file())
        found.append({f.partition("site-packages/")[2] or f for f in files if "laid.json" not in f})
    return found[0], found[1]


def notes(changed: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(
        (changed / "series/opt/vllm-rig/laid.json").read_text()
    )
    return found


def test_on_the_release_only_the_series_is_laid(
    fabric: Fabric, python: Path, docker: Path, tmp_path: Path
) -> None:
    install(python, release_of(fabric))
    wheel = fabric.build(fabric.series(CHANGES)).path
    done = split(python, docker, wheel, tmp_path / "changed")
    assert done.returncode == 0, done.stderr
    release, series = parts(tmp_path / "changed")
    assert release == set()
    assert {name for name in series if name.startswith("vllm/")} == SERIES
    gone = notes(tmp_path / "changed")["gone"]
    assert any(name.endswith("vllm/old.py") for name in gone)
    assert any(name.endswith("vllm-1.2.3.dist-info/METADATA") for name in gone)


def test_on_nothing_the_unpatched_files_are_the_release_s(
    fabric: Fabric, python: Path, docker: Path, tmp_path: Path
) -> None:
    wheel = fabric.build(fabric.series(CHANGES)).path
    assert split(python, docker, wheel, tmp_path / "changed").returncode == 0
    release, series = parts(tmp_path / "changed")
    assert "vllm/_C.abi3.so" in release and not release & SERIES
    assert {name for name in series if name.startswith("vllm/")} == SERIES
    assert notes(tmp_path / "changed")["gone"] == []


def test_compiled_code_of_another_build_is_replaced_with_the_release_s(
    fabric: Fabric, python: Path, docker: Path, tmp_path: Path
) -> None:
    install(python, release_of(Fabric(tmp_path / "x", wheel_edits={"vllm/_C.abi3.so": b"other"})))
    wheel = fabric.build(fabric.series(CHANGES)).path
    assert split(python, docker, wheel, tmp_path / "changed").returncode == 0
    assert parts(tmp_path / "changed")[0] == {"vllm/_C.abi3.so"}


def test_a_wheel_for_another_processor(
    fabric: Fabric, python: Path, docker: Path, tmp_path: Path
) -> None:
    wheel = fabric.build(fabric.series(CHANGES)).path
    other = wheel.with_name("vllm-1.2.3+rig.1-cp38-abi3-manylinux_2_28_sparc.whl")
    wheel.rename(other)
    done = split(python, docker, other, tmp_path / "changed")
    assert done.returncode == 1
    assert "is not for this image's processor" in done.stderr
    assert not (tmp_path / "changed").exists()


def test_a_base_image_of_another_release(
    fabric: Fabric, python: Path, docker: Path, tmp_path: Path
) -> None:
    old = tmp_path / "vllm-1.2.2-py3-none-any.whl"
    make_wheel(old, "vllm", "1.2.2")
    install(python, old)
    done = split(python, docker, fabric.build(fabric.series(CHANGES)).path, tmp_path / "changed")
    assert done.returncode == 1
    assert "holds vLLM 1.2.2, the wheel stands on 1.2.3" in done.stderr


def test_ray_that_lacks_something_is_found(python: Path, docker: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "ray-2.60.0-py3-none-any.whl"
    make_wheel(wheel, "ray", "2.60.0", "pip>=1", "msgpack<2,>=1", 'x ; extra == "y"')
    install(python, wheel)
    code = f"import sys; sys.path.insert(0, {str(docker)!r}); import lay_wheel; "
    code += "print(lay_wheel.missing_of('ray'))"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['msgpack<2,>=1']"


def test_the_end_removes_what_is_gone_and_compiles(
    lay_wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "vllm-1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("")
    (tmp_path / "new.py").write_text("x = 1\n")
    note = tmp_path / "laid.json"
    gone = [str(old / "METADATA")]
    left = {"packages": str(tmp_path), "gone": gone, "compile": [str(tmp_path / "new.py")]}
    note.write_text(json.dumps(left))
    monkeypatch.setattr(lay_wheel, "NOTES", note)
    monkeypatch.setattr(lay_wheel, "missing_of", lambda name: [])
    lay_wheel.finish()
    assert not old.exists()
    assert list((tmp_path / "__pycache__").glob("new.*.pyc"))


@pytest.mark.parametrize("changes", [CHANGES, {"vllm/platforms/cpu.py": b"x = 1\n"}])
def test_what_was_laid_on_the_release_is_the_wheel(
    fabric: Fabric, python: Path, docker: Path, tmp_path: Path, changes: dict[str, bytes | None]
) -> None:
    """As the Dockerfiles do it: split in a copy that is thrown away, laid on the original."""
    install(python, release_of(fabric))
    venv, base = python.parent.parent, tmp_path / "base"
    shutil.copytree(venv, base, symlinks=True)
    wheel = fabric.build(fabric.series(changes)).path
    changed = tmp_path / "changed"
    assert split(python, docker, wheel, changed).returncode == 0
    shutil.rmtree(venv)
    base.rename(venv)
    for part in (changed / p / tmp_path.relative_to("/") for p in ("release", "series")):
        if part.is_dir():
            shutil.copytree(part, tmp_path, dirs_exist_ok=True)
    code = f"import sys; sys.path.insert(0, {str(docker)!r}); import lay_wheel; "
    code += f"lay_wheel.NOTES = lay_wheel.Path({str(changed / 'series/opt/vllm-rig/laid.json')!r});"
    code += "lay_wheel.missing_of = lambda name: []; lay_wheel.finish()"
    subprocess.run([python, "-c", code], check=True)
    assert check_installation(python, full=True).version == "1.2.3+rig.1"
    (packages,) = venv.glob("lib/python*/site-packages")
    assert [p.name for p in packages.glob("vllm*.dist-info")] == ["vllm-1.2.3+rig.1.dist-info"]
    if "vllm/old.py" in changes:
        assert not list(packages.glob("vllm/**/old.*"))


def test_folders_that_are_empty_at_the_end_go_and_no_others(
    lay_wheel: ModuleType, tmp_path: Path
) -> None:
    packages, scripts = tmp_path / "packages", tmp_path / "bin"
    gone = [packages / "vllm/a/b/old.py", packages / "vllm/tool.py", scripts / "old"]
    kept = packages / "vllm/tool.py.txt"
    for path in (*gone, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    code = packages / "vllm/a/b/__pycache__/old.cpython-312.pyc"
    code.parent.mkdir()
    code.touch()
    lay_wheel.remove(gone, packages)
    assert [p for p in packages.rglob("*") if p.is_file()] == [kept]
    assert not (packages / "vllm/a").exists()
    assert scripts.is_dir()  # it is the system's


def make_wheel(path: Path, name: str, version: str, *requires: str) -> None:
    """The smallest wheel that pip takes."""
    import zipfile

    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    files = {
        f"{name}/__init__.py": "",
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{place},,\n" for place in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(place, text)
