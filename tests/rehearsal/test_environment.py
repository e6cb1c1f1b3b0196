"""The engine's environment: what is done, when, and what survives a kill.

Most tests replace the commands by a `Recorder`, which leaves what they would leave. The last
ones run the real `venv` and the real pip, on small wheels made here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Pin
from rig.rehearsal.environment import (
    Stamp,
    Work,
    engine_environment,
    environment_folder,
    read_stamp,
    site_packages,
    work_to_do,
)

VERSION = "0.32.0"
STAMP = Stamp(folder="/a", python="CPython 3.11", packages="p", wheel="w", shim="s")
SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root = tmp_path / "checkout"
    (root / "requirements").mkdir(parents=True)
    (root / "requirements" / f"engine-{VERSION}.in").write_text("ray==2.60.0\n")
    (root / "requirements" / f"engine-{VERSION}.txt").write_text("ray==2.60.0\ntorch==2.13.0\n")
    return Layout(root, tmp_path / "cache")


@pytest.fixture
def pin() -> Pin:
    digest = "0" * 64
    wheel = {"name": f"vllm-{VERSION}-cp38-abi3-linux_x86_64.whl", "sha256": digest}
    return Pin.model_validate(
        {
            "version": VERSION,
            "role": "secondary",
            "commit": "5df63a720",
            "python": ">=3.11",
            "torch": "2.13.0",
            "sdist": {"name": f"vllm-{VERSION}.tar.gz", "sha256": digest},
            "wheels": {"cuda": {"x86_64": wheel}},
        }
    )


def wheel_of(folder: Path, name: str, version: str, *requires: str, body: str = "") -> Path:
    """A small wheel that pip installs."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {r}\n" for r in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{f},,\n" for f in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return wheel_of(tmp_path, "vllm", f"{VERSION}+rig.1.cpu", "torch==2.13.0", body="build = 1\n")


class Recorder:
    """Notes each command by a short name and leaves behind what it would leave."""

    def __init__(self, fail: str | None = None) -> None:
        self.done: list[str] = []
        self.fail = fail

    def __call__(self, command: Sequence[str], log: Path, lock: int) -> None:
        os.fstat(lock)  # the lock is held
        name = self.name(command)
        self.done.append(name)
        if name == self.fail:
            raise RigError(f"{name} failed", detail="the end of its log")
        if name == "venv":
            folder = Path(command[-1])
            site_packages(folder).mkdir(parents=True, exist_ok=True)
            for old in site_packages(folder).iterdir():
                old.unlink()

    @staticmethod
    def name(command: Sequence[str]) -> str:
        if "venv" in command:
            return "venv"
        if "pip" in command:
            return "wheel" if "--no-deps" in command else "all"
        return "check"


def test_nothing_is_done_when_nothing_changed() -> None:
    assert work_to_do(STAMP, replace(STAMP)) is Work.NOTHING


@pytest.mark.parametrize("field", ["wheel", "shim"])
def test_another_wheel_or_shim_renews_only_that(field: str) -> None:
    assert work_to_do(STAMP, replace(STAMP, **{field: "other"})) is Work.RENEW_WHEEL


@pytest.mark.parametrize("field", ["folder", "python", "packages"])
def test_another_base_renews_everything(field: str) -> None:
    wanted = replace(STAMP, wheel="other", **{field: "other"})
    assert work_to_do(STAMP, wanted) is Work.EVERYTHING


def test_without_a_stamp_everything_is_done() -> None:
    assert work_to_do(None, STAMP) is Work.EVERYTHING


def test_the_first_call_makes_it_and_the_second_only_looks(
    layout: Layout, pin: Pin, wheel: Path
) -> None:
    first, second = Recorder(), Recorder()
    environment = engine_environment(layout, pin, wheel, run=first)
    assert engine_environment(layout, pin, wheel, run=second) == environment
    assert first.done == ["venv", "all", "check"]
    assert second.done == ["check"]
    assert environment.version == f"{VERSION}+rig.1.cpu"
    assert environment.folder == environment_folder(layout, pin)
    assert (environment.site_packages / "rig_torchvision_shim.pth").is_file()


def test_another_wheel_is_installed_alone(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    engine_environment(layout, pin, wheel, run=Recorder())
    (tmp_path / "next").mkdir()
    other = wheel_of(tmp_path / "next", "vllm", f"{VERSION}+rig.2.cpu")
    again = Recorder()
    assert engine_environment(layout, pin, other, run=again).version == f"{VERSION}+rig.2.cpu"
    assert again.done == ["wheel", "check"]


def test_other_requirements_make_it_afresh(layout: Layout, pin: Pin, wheel: Path) -> None:
    engine_environment(layout, pin, wheel, run=Recorder())
    versions = layout.root / "requirements" / f"engine-{VERSION}.txt"
    versions.write_text("ray==2.60.0\n")
    again = Recorder()
    engine_environment(layout, pin, wheel, run=again)
    assert again.done == ["venv", "all", "check"]


def test_one_that_no_longer_answers_is_made_afresh(layout: Layout, pin: Pin, wheel: Path) -> None:
    engine_environment(layout, pin, wheel, run=Recorder())

    class Broken(Recorder):
        def __call__(self, command: Sequence[str], log: Path, lock: int) -> None:
            broken = not self.done
            super().__call__(command, log, lock)
            if broken:
                raise RigError("no vllm in it")

    again = Broken()
    engine_environment(layout, pin, wheel, run=again)
    assert again.done == ["check", "venv", "all", "check"]


@pytest.mark.parametrize("fail", ["venv", "all", "check"])
def test_after_a_failure_it_starts_afresh(layout: Layout, pin: Pin, wheel: Path, fail: str) -> None:
    with pytest.raises(RigError):
        engine_environment(layout, pin, wheel, run=Recorder(fail))
    assert read_stamp(environment_folder(layout, pin)) is None
    again = Recorder()
    engine_environment(layout, pin, wheel, run=again)
    assert again.done == ["venv", "all", "check"]


def test_a_renewal_that_fails_trusts_nothing_afterwards(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    engine_environment(layout, pin, wheel, run=Recorder())
    (tmp_path / "next").mkdir()
    other = wheel_of(tmp_path / "next", "vllm", f"{VERSION}+rig.2.cpu")
    with pytest.raises(RigError):
        engine_environment(layout, pin, other, run=Recorder("wheel"))
    again = Recorder()
    engine_environment(layout, pin, wheel, run=again)
    assert again.done == ["venv", "all", "check"]


@pytest.mark.parametrize("stamp", ["", "{}", "[1]", '{"wheel": 1}', "\x00"])
def test_a_stamp_that_cannot_be_read_is_none(
    layout: Layout, pin: Pin, wheel: Path, stamp: str
) -> None:
    folder = engine_environment(layout, pin, wheel, run=Recorder()).folder
    (folder / "rig-stamp.json").write_text(stamp)
    assert read_stamp(folder) is None


def test_a_pin_without_requirements_says_which_have_some(
    layout: Layout, pin: Pin, wheel: Path
) -> None:
    other = pin.model_copy(update={"version": "0.33.0"})
    with pytest.raises(RigError, match=r"no engine environment for vLLM 0\.33\.0") as caught:
        engine_environment(layout, other, wheel, run=Recorder())
    assert VERSION in str(caught.value)


def test_a_full_disk_is_said_plainly(layout: Layout, pin: Pin, wheel: Path) -> None:
    def full(command: Sequence[str], log: Path, lock: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RigError, match="No space left on device"):
        engine_environment(layout, pin, wheel, run=full)


def test_after_a_kill_the_next_call_waits_for_the_orphan_and_heals(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    ended = tmp_path / "orphan ended"
    script = f"""
        import subprocess, sys, time
        from pathlib import Path
        from rig.layout import Layout
        from rig.pins import Pin
        from rig.rehearsal.environment import engine_environment, site_packages
        def run(command, log, lock):
            if "venv" in command:
                site_packages(Path(command[-1])).mkdir(parents=True)
                return
            slow = "sleep 2; echo > \\"$1\\""
            subprocess.Popen(["sh", "-c", slow, "sh", {str(ended)!r}], pass_fds=(lock,))
            print("installing", flush=True)
            time.sleep(60)
        layout = Layout(Path({str(layout.root)!r}), Path({str(layout.cache)!r}))
        pin = Pin.model_validate_json({pin.model_dump_json()!r})
        engine_environment(layout, pin, Path({str(wheel)!r}), run=run)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"installing\n"
        victim.send_signal(signal.SIGKILL)
    assert not ended.exists()

    class Looks(Recorder):
        def __call__(self, command: Sequence[str], log: Path, lock: int) -> None:
            assert ended.exists(), "the orphan was still at work"
            super().__call__(command, log, lock)

    again = Looks()
    engine_environment(layout, pin, wheel, run=again)
    assert again.done == ["venv", "all", "check"]


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
    requires = "torch==2.13.0"
    body = "build = 2\n"
    same_version = wheel_of(
        tmp_path / "next", "vllm", wheel.name.split("-")[1], requires, body=body
    )
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


def test_it_lies_outside_a_checkout_from_which_ray_could_not_run(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    spaced = tmp_path / "a checkout"
    shutil.copytree(layout.root, spaced)
    moved = replace(layout, root=spaced)
    environment = engine_environment(moved, pin, wheel, run=Recorder())
    assert environment.folder.is_relative_to(layout.cache)
    other = replace(layout, root=tmp_path / "another checkout")
    assert environment_folder(other, pin) != environment.folder
    with pytest.raises(RigError, match="VLLM_RIG_CACHE"):
        environment_folder(replace(moved, cache=tmp_path / "a cache"), pin)
