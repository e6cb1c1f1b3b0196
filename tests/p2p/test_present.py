"""How cards that are gone, or want a reset, are told from cards that are well."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.p2p.present import missing_cards

from .conftest import a_box

Stub = Callable[[str], None]

_STUB = """
import time, types
NVML_SUCCESS = 0
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
class NVMLError(Exception): pass
SHOWN = {0: b"00000000:01:00.0", 1: "00000000:02:00.0"}
ACTIONS = {}
DEAD = ()
def nvmlInit(): pass
def nvmlDeviceGetCount(): return len(SHOWN)
def nvmlDeviceGetHandleByIndex(i): return i
def nvmlDeviceGetPciInfo(i): return types.SimpleNamespace(busId=SHOWN[i])
def nvmlDeviceGetMemoryInfo(i):
    if i in DEAD: raise NVMLError("GPU is lost")
def nvmlDeviceGetFieldValues(i, fields):
    assert fields == [230]
    union = types.SimpleNamespace(uiVal=ACTIONS.get(i, 0))
    return [types.SimpleNamespace(nvmlReturn=0 if i in ACTIONS else 3, value=union)]
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Put a `pynvml` that behaves so in front of the real one, for child processes."""

    def install(more: str) -> None:
        (tmp_path / "pynvml.py").write_text(_STUB + more)
        scripts = Path(__file__).resolve().parents[2] / "scripts"
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(scripts)]))

    return install


def test_all_well(stub: Stub) -> None:
    stub("")
    assert missing_cards(a_box(2)) == {}


def test_one_fell_off_the_bus(stub: Stub) -> None:
    stub("del SHOWN[1]")
    found = missing_cards(a_box(2))
    assert list(found) == [1] and "fell off the bus" in found[1]


def test_one_is_lost_but_still_counted(stub: Stub) -> None:
    stub("DEAD = (0,)")
    assert missing_cards(a_box(2)) == {0: "the driver says: GPU is lost"}


def test_the_driver_wants_a_reset(stub: Stub) -> None:
    stub("ACTIONS = {0: 0, 1: 6}")
    assert missing_cards(a_box(2)) == {1: "the driver wants its bus to be reset"}
    stub("ACTIONS = {0: 2}")
    assert missing_cards(a_box(2)) == {0: "the driver wants the machine to be rebooted"}


def test_a_driver_that_cannot_be_asked_is_the_reason_for_all(stub: Stub) -> None:
    stub("def nvmlInit(): raise NVMLError('driver not loaded')")
    found = missing_cards(a_box(2))
    assert set(found) == {0, 1} and "driver not loaded" in found[0]


def test_a_driver_that_hangs_is_the_reason_for_all(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rig.p2p.present._PATIENCE_S", 1)
    stub("def nvmlInit(): time.sleep(600)")
    assert set(missing_cards(a_box(2))) == {0, 1}
    assert "does not answer" in missing_cards(a_box(2))[1]


def test_a_driver_that_holds_who_asks_it_does_not_hold_us(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the driver's hands survives SIGKILL: nobody may wait for its end."""
    monkeypatch.setattr("rig.p2p.present._PATIENCE_S", 1)
    kill = subprocess.Popen.kill
    held: list[subprocess.Popen[str]] = []
    monkeypatch.setattr("subprocess.Popen.kill", lambda process: held.append(process))
    stub("def nvmlInit(): time.sleep(30)")
    began = time.monotonic()
    try:
        assert "does not answer" in missing_cards(a_box(2))[1]
        assert time.monotonic() - began < 10
        assert held
    finally:
        for process in held:
            kill(process)
            process.wait()
