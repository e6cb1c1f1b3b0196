"""The engine's environment: what is done, when, and what survives a kill.

The commands are replaced by a `Recorder`, which leaves what they would leave.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Pin
from rig.rehearsal.environment import (
    EngineEnvironment,
    Stamp,
    Work,
    engine_environment,
    environment_folder,
    read_stamp,
    site_packages,
    work_to_do,
)

from .conftest import VERSION, rig_wheel

STAMP = Stamp(folder="/a", python="CPython 3.11", packages="p", wheel="w", shim="s")
SCRIPTS = Path(__file__).parents[2] / "scripts"


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
        raise AssertionError(command)

    def check(self, folder: Path, version: str) -> str | None:
        self.done.append("check")
        return "broken" if self.fail == "check" else None

    def make(self, layout: Layout, pin: Pin, wheel: Path) -> EngineEnvironment:
        return engine_environment(layout, pin, wheel, run=self, check=self.check)


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
    environment = first.make(layout, pin, wheel)
    assert second.make(layout, pin, wheel) == environment
    assert first.done == ["venv", "all", "check"]
    assert second.done == ["check"]
    assert environment.version == f"{VERSION}+rig.1.cpu"
    assert environment.folder == environment_folder(layout, pin)
    assert (environment.site_packages / "rig_torchvision_shim.pth").is_file()


def test_another_wheel_is_installed_alone(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    Recorder().make(layout, pin, wheel)
    (tmp_path / "next").mkdir()
    other = rig_wheel(tmp_path / "next", 2)
    again = Recorder()
    assert again.make(layout, pin, other).version == f"{VERSION}+rig.2.cpu"
    assert again.done == ["wheel", "check"]


def test_other_requirements_make_it_afresh(layout: Layout, pin: Pin, wheel: Path) -> None:
    Recorder().make(layout, pin, wheel)
    versions = layout.root / "requirements" / f"engine-{VERSION}.txt"
    versions.write_text("ray==2.60.0\n")
    again = Recorder()
    again.make(layout, pin, wheel)
    assert again.done == ["venv", "all", "check"]


class Damaged(Recorder):
    """Finds an environment damaged at the first look."""

    def __init__(self, damage: str) -> None:
        super().__init__()
        self.damage = damage

    def check(self, folder: Path, version: str) -> str | None:
        first = "check" not in self.done
        super().check(folder, version)
        return self.damage if first else None


def test_one_that_is_damaged_says_so_and_is_made_afresh(
    layout: Layout, pin: Pin, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Recorder().make(layout, pin, wheel)

    again = Damaged("missing: vllm/a.py")
    again.make(layout, pin, wheel)
    assert again.done == ["check", "venv", "all", "check"]
    said = " ".join(capsys.readouterr().err.split())
    assert "is damaged (missing: vllm/a.py); it is made anew" in said


def test_one_that_a_new_wheel_does_not_mend_is_made_afresh(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    Recorder().make(layout, pin, wheel)
    (tmp_path / "next").mkdir()
    again = Damaged("missing: torch/a.py")
    again.make(layout, pin, rig_wheel(tmp_path / "next", 2))
    assert again.done == ["wheel", "check", "venv", "all", "check"]


@pytest.mark.parametrize("fail", ["venv", "all", "check"])
def test_after_a_failure_it_starts_afresh(layout: Layout, pin: Pin, wheel: Path, fail: str) -> None:
    with pytest.raises(RigError):
        Recorder(fail).make(layout, pin, wheel)
    assert read_stamp(environment_folder(layout, pin)) is None
    again = Recorder()
    again.make(layout, pin, wheel)
    assert again.done == ["venv", "all", "check"]


def test_a_renewal_that_fails_trusts_nothing_afterwards(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    Recorder().make(layout, pin, wheel)
    (tmp_path / "next").mkdir()
    other = rig_wheel(tmp_path / "next", 2)
    with pytest.raises(RigError):
        Recorder("wheel").make(layout, pin, other)
    again = Recorder()
    again.make(layout, pin, wheel)
    assert again.done == ["venv", "all", "check"]


@pytest.mark.parametrize("stamp", ["", "{}", "[1]", '{"wheel": 1}', "\x00"])
def test_a_stamp_that_cannot_be_read_is_none(
    layout: Layout, pin: Pin, wheel: Path, stamp: str
) -> None:
    folder = Recorder().make(layout, pin, wheel).folder
    (folder / "rig-stamp.json").write_text(stamp)
    assert read_stamp(folder) is None


def test_a_pin_without_requirements_says_which_have_some(
    layout: Layout, pin: Pin, wheel: Path
) -> None:
    other = pin.model_copy(update={"version": "0.33.0"})
    with pytest.raises(RigError, match=r"no engine environment for vLLM 0\.33\.0") as caught:
        Recorder().make(layout, other, wheel)
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
    again.make(layout, pin, wheel)
    assert again.done == ["venv", "all", "check"]


def test_it_lies_outside_a_checkout_from_which_ray_could_not_run(
    layout: Layout, pin: Pin, wheel: Path, tmp_path: Path
) -> None:
    spaced = tmp_path / "a checkout"
    shutil.copytree(layout.root, spaced)
    moved = replace(layout, root=spaced)
    environment = Recorder().make(moved, pin, wheel)
    assert environment.folder.is_relative_to(layout.cache)
    other = replace(layout, root=tmp_path / "another checkout")
    assert environment_folder(other, pin) != environment.folder
    with pytest.raises(RigError, match="VLLM_RIG_CACHE"):
        environment_folder(replace(moved, cache=tmp_path / "a cache"), pin)
