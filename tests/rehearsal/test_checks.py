"""What the rehearsal asserts before it prints."""

from __future__ import annotations

import json
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig.errors import RigError
from rig.launch.serve import Rank, StopReport
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import find_pin
from rig.rehearsal import rehearse
from rig.rehearsal.client import ServedBuild
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.locks import locked
from rig.rehearsal.phases import Phases
from rig.rehearsal.photograph import PHOTOGRAPHS, photograph
from rig.rehearsal.rehearse import (
    check_build,
    check_nothing_left,
    check_ranks,
    provenance_of_wheel,
)
from rig.rehearsal.stage import SERVED_NAME, serve_options
from rig.rehearsal.traces import Remains
from rig.wheel.provenance import PROVENANCE_PATH, Provenance, format_provenance

PROVENANCE = Provenance.model_validate_json(
    json.dumps(
        {
            "schema": 1,
            "version": "0.32.0+rig.1.cpu",
            "release": "0.32.0",
            "commit": "5df63a720",
            "flavour": "cpu",
            "series": "a" * 64,
            "tree": "b" * 40,
            "patches": [
                {"number": "0101", "subject": "One", "file": "0101-one.patch", "sha256": "c" * 64}
            ],
            "files": {"vllm/_version.py": "d" * 64},
            "removed": [],
        }
    )
)


def ranks(*places: tuple[int, int]) -> list[Rank]:
    return [Rank(rank, pid, "worker", "", "", 0) for rank, pid in places]


def test_four_ranks_in_four_processes_pass() -> None:
    check_ranks(ranks((2, 12), (0, 10), (1, 11), (3, 13)), 4)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        [(0, 10), (1, 11), (2, 12)],
        [(0, 10), (1, 11), (2, 12), (3, 12)],
        [(0, 10), (1, 11), (2, 12), (2, 13)],
        [(0, 10), (1, 11), (2, 12), (3, 13), (4, 14)],
    ],
)
def test_other_ranks_do_not(seen: list[tuple[int, int]]) -> None:
    with pytest.raises(RigError, match="4 ranks were wanted"):
        check_ranks(ranks(*seen), 4)


SERVED = ServedBuild(PROVENANCE.version, PROVENANCE.series, ("0101",))


def served(monkeypatch: pytest.MonkeyPatch, build: ServedBuild) -> None:
    monkeypatch.setattr(rehearse, "served_build", lambda _: build)


def test_the_build_that_the_wheel_names_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, SERVED)
    assert check_build("http://x", PROVENANCE) == ("0101 One",)


@pytest.mark.parametrize(
    "build",
    [
        ServedBuild("0.32.0"),
        replace(SERVED, version="0.32.0+rig.2.cpu"),
        replace(SERVED, series="e" * 64),
        replace(SERVED, patches=()),
        replace(SERVED, patches=("0101", "0201")),
        replace(SERVED, modified=("vllm/a.py: changed",)),
    ],
)
def test_another_build_does_not(monkeypatch: pytest.MonkeyPatch, build: ServedBuild) -> None:
    served(monkeypatch, build)
    with pytest.raises(RigError, match="not the build"):
        check_build("http://x", PROVENANCE)


def test_a_clean_stop_passes() -> None:
    check_nothing_left(StopReport(5, ("/dev/shm/psm_1",), ()), Remains((), ()))


@pytest.mark.parametrize(("left", "ours"), [(("process 7",), ()), ((), ("file /dev/shm/psm_1",))])
def test_whatever_is_left_is_named(left: tuple[str, ...], ours: tuple[str, ...]) -> None:
    with pytest.raises(RigError) as caught:
        check_nothing_left(StopReport(5, (), left), Remains(ours, ()))
    assert (*left, *ours)[0] in str(caught.value)


def test_what_another_program_left_meanwhile_is_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_nothing_left(StopReport(5, (), ()), Remains((), ("file /dev/shm/psm_2",)))
    assert "psm_2" in capsys.readouterr().err


def test_a_launcher_that_says_nothing_of_its_stop_does_not_pass() -> None:
    with pytest.raises(RigError):
        check_nothing_left(None, Remains((), ()))


def test_a_wheel_of_ours_says_what_it_carries(tmp_path: Path) -> None:
    wheel = tmp_path / "ours.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(PROVENANCE_PATH, format_provenance(PROVENANCE))
    assert provenance_of_wheel(wheel) == PROVENANCE


@pytest.mark.parametrize("content", ["a release", "not a zip", "missing"])
def test_another_wheel_is_refused(tmp_path: Path, content: str) -> None:
    wheel = tmp_path / "other.whl"
    if content == "a release":
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
    elif content == "not a zip":
        wheel.write_text(content)
    with pytest.raises(RigError, match="not a wheel of a rig build"):
        provenance_of_wheel(wheel)


def test_the_photograph_is_the_file_that_scikit_image_ships(tmp_path: Path) -> None:
    data = tmp_path / "skimage" / "data"
    data.mkdir(parents=True)
    png = b"\x89PNG\r\n\x1a\nrest"
    (data / "astronaut.png").write_bytes(png)
    assert photograph(tmp_path) == png
    (data / "coffee.png").write_bytes(b"an error page")
    for name, said in (("coffee", "not a PNG"), ("chelsea", "No such file"), ("dog", "there are")):
        with pytest.raises(RigError, match=said):
            photograph(tmp_path, name)
    assert "astronaut" in PHOTOGRAPHS


def test_it_is_served_in_the_oracles_precision_by_the_launcher_of_rigs(tmp_path: Path) -> None:
    environment = EngineEnvironment(tmp_path / "env", "0.32.0+rig.1.cpu")
    options = serve_options(environment, tmp_path / "model", tmp_path, ranks=4)
    assert (options.ranks, options.executor, options.rehearse) == (4, "ray", True)
    words = options.extra_arguments
    assert words[words.index("--dtype") + 1] == "float32"
    assert words[words.index("--served-model-name") + 1] == SERVED_NAME


def test_a_number_of_ranks_that_no_head_count_allows_is_refused_first(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "cache")
    pin = find_pin(layout_of_this_checkout(), "0.32.0")
    with pytest.raises(RigError, match="over 3 ranks"):
        rehearse.rehearse(layout, pin, tmp_path / "no such wheel", ranks=3)
    assert not (tmp_path / "build").exists()


def test_phases_are_timed_and_a_failed_one_is_shown_as_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    phases = Phases()
    with phases.phase("good"):
        pass
    with pytest.raises(ValueError), phases.phase("bad [red]"):
        raise ValueError
    said = capsys.readouterr().err
    assert "good: done in 0.0 s" in said
    assert "bad [red]: failed after 0.0 s" in said
    assert set(phases.seconds) == {"good", "bad [red]"}
    assert phases.total == pytest.approx(sum(phases.seconds.values()))


def test_a_lock_is_waited_for_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    order: list[str] = []
    path = tmp_path / "folder" / "a.lock"

    def second() -> None:
        with locked(path, "at work"):
            order.append("second")

    with locked(path, "at work"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert "another run is at work" in capsys.readouterr().err
