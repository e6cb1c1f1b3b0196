"""A patch that was dropped because upstream has it, and that upstream reverts later."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.pins import find_pin, primary_pin
from rig.rebase import command
from rig.rebase.forecast import forecast
from rig.series.apply import apply
from rig.series.lock import read_lock
from tests.series.releases import Entry, Tree, release_files
from tests.series.workshop import Workshop

from .conftest import checkout_of, offer, read_tree, write_tree
from .corpus import ABOVE, BASE, CONFIG, ENGINE, FIX, UPSTREAM, Case, Patch, both, edit, move

NEXT, LAST = "0.5.0", "0.6.0"
_CONFIG = edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n")
_REVERT = edit(ENGINE, "engine_040 = 4000\n", "engine_040 = 40\n")
CASE = Case("", (Patch("0101", FIX), Patch("0102", _CONFIG)), FIX, {}, None)


def _of(files: Tree, version: str) -> Tree:
    return files | {"vllm/_version.py": release_files(version)["vllm/_version.py"]}


def _dropped(folder: Path, case: Case = CASE) -> Workshop:
    """The series on a release that has 0101."""
    workshop = checkout_of(case, folder / "w")
    assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert find_pin(workshop.layout, UPSTREAM).skip["0101"].startswith("merged upstream: ")
    return workshop


def _reverted(folder: Path) -> Workshop:
    workshop = _dropped(folder)
    offer(workshop, _of(_REVERT(CASE.new_release()), NEXT), NEXT)
    return workshop


def _report(workshop: Workshop) -> str:
    return (workshop.layout.build / "rebase-report" / "report.md").read_text()


def _why(workshop: Workshop, version: str) -> str:
    return find_pin(workshop.layout, version).skip["0101"]


def test_it_is_said_and_waits_for_a_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop = _reverted(tmp_path)
    assert not command.begin(workshop.layout, NEXT, None, dry_run=True)
    assert not command.begin(workshop.layout, NEXT, None, dry_run=False)
    assert primary_pin(workshop.layout).version == UPSTREAM
    for said in (capsys.readouterr().out, _report(workshop)):
        text = " ".join(said.split())  # the terminal breaks lines
        assert f"left out of vLLM {UPSTREAM}: merged upstream: all 1 lines" in text
        assert f"But vLLM {NEXT} lacks its lines" in text
        assert f"1 of the 1 that it adds ({ENGINE} lacks 'engine_040 = 4000')" in text
        assert f"1 of the 1 that it removes are back in {ENGINE}" in text
        assert f"bring it back from vLLM {BASE}" in text
    assert not command.proceed(workshop.layout), "to look away is no answer"


def test_it_is_brought_back_as_the_tool_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = _reverted(tmp_path)
    command.begin(workshop.layout, NEXT, None, dry_run=False)
    assert command.proceed(workshop.layout, accept=["0101"])
    said = capsys.readouterr().out
    before = [read_lock(workshop.layout, version).final for version in (BASE, UPSTREAM)]

    # What is printed, as a person runs it.
    commands = said.partition("To bring it back:\n")[2]
    applied, *steps = re.findall(r"^    (.+)$", commands, re.MULTILINE)
    assert applied == f"./rig apply {BASE} && ./rig apply {NEXT}"
    for version in (BASE, NEXT):
        apply(workshop.layout, find_pin(workshop.layout, version))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    subprocess.run(["sh", "-ec", "\n".join(steps)], cwd=workshop.root, check=True)
    pin = workshop.layout.pins / f"{NEXT}.toml"
    pin.write_text(re.sub(r"(?m)^0101 = .*\n", "", pin.read_text()))
    workshop.refresh()

    assert find_pin(workshop.layout, NEXT).skip == {}
    tree = apply(workshop.layout, find_pin(workshop.layout, NEXT)).folder
    assert read_tree(tree) == both(FIX, _CONFIG)(_of(CASE.base, NEXT))
    assert before == [read_lock(workshop.layout, version).final for version in (BASE, UPSTREAM)]
    assert workshop.verify()
    assert workshop.refresh() == []


def test_a_later_release_is_looked_at_again(tmp_path: Path) -> None:
    workshop = _reverted(tmp_path)
    command.begin(workshop.layout, NEXT, None, dry_run=False)
    assert command.proceed(workshop.layout, accept=["0101"])
    assert f"; but not in vLLM {NEXT}: 1 of the 1 that it adds" in _why(workshop, NEXT)
    assert _why(workshop, UPSTREAM).startswith("merged upstream: ")
    assert workshop.verify()
    offer(workshop, _of(ABOVE(dict(CASE.base)), LAST), LAST)
    assert not command.begin(workshop.layout, LAST, None, dry_run=False)
    # A person's reason ends it.
    why = "the engine does this in another place now"
    assert command.proceed(workshop.layout, drop={"0101": why})
    assert _why(workshop, LAST) == why
    assert "but not in" not in why
    assert workshop.verify()
    newest = "0.7.0"
    offer(workshop, _of(dict(CASE.base), newest), newest)
    assert command.begin(workshop.layout, newest, None, dry_run=False)


def test_a_number_that_is_nowhere_is_still_refused(tmp_path: Path) -> None:
    workshop = _reverted(tmp_path)
    command.begin(workshop.layout, NEXT, None, dry_run=False)
    with pytest.raises(RigError, match="no patch 0999"):
        command.proceed(workshop.layout, accept=["0999"])
    with pytest.raises(RigError, match="no patch 0101"):
        command.proceed(workshop.layout, edit=["0101"])


def test_a_forecast_says_it(tmp_path: Path) -> None:
    workshop = _dropped(tmp_path)
    for name, change, numbers in (("same", ABOVE, []), ("reverted", _REVERT, ["0101"])):
        folder = tmp_path / name
        folder.mkdir()
        write_tree(folder, {}, change(CASE.new_release()))
        report = forecast(workshop.layout, primary_pin(workshop.layout), str(folder))
        assert [one.number for one in report.needed_again] == numbers
        assert ("1 left out, and gone upstream" in report.summary()) == bool(numbers)


@pytest.mark.parametrize("what", ["lines above", "renamed", "a line that others have as well"])
def test_what_upstream_still_has_is_not_asked_for(tmp_path: Path, what: str) -> None:
    base = dict(CASE.base)
    fix = FIX
    if what == "a line that others have as well":
        base = edit(ENGINE, "engine_010 = 10\n", "same = 1\n")(base)
        fix = both(FIX, edit(ENGINE, "engine_060 = 60\n", "engine_060 = 60\nsame = 1\n"))
    later = {
        "lines above": ABOVE,
        "renamed": move(ENGINE, "vllm/motor.py"),
        "a line that others have as well": edit(ENGINE, "009 = 9\nsame = 1\n", "009 = 9\n"),
    }[what]
    case = Case("", (Patch("0101", fix), Patch("0102", _CONFIG)), fix, {}, None, base=base)
    workshop = _dropped(tmp_path, case)
    offer(workshop, _of(later(case.new_release()), NEXT), NEXT)
    assert command.begin(workshop.layout, NEXT, None, dry_run=False)
    assert _why(workshop, NEXT) == _why(workshop, UPSTREAM)


def test_an_older_release_lacks_it(tmp_path: Path) -> None:
    """A back-port from the release that has it to one that never had."""
    workshop = _dropped(tmp_path)
    offer(workshop, release_files("0.1.0"), "0.1.0")
    assert not command.begin(workshop.layout, "0.1.0", None, dry_run=False)
    assert command.proceed(workshop.layout, accept=["0101"])
    assert "; but not in vLLM 0.1.0: " in _why(workshop, "0.1.0")
    assert workshop.verify()


def test_a_text_that_no_pin_has(tmp_path: Path) -> None:
    """The only pin that carried it is gone: the report says that nobody looked."""
    workshop = _reverted(tmp_path)
    for path in (workshop.layout.pins / f"{BASE}.toml", workshop.layout.lock(BASE)):
        path.unlink()
    for path in (workshop.layout.patches / BASE).iterdir():
        path.unlink()
    assert command.begin(workshop.layout, NEXT, None, dry_run=True)
    assert "no pin has its text: its lines were not looked for" in _report(workshop)


@pytest.mark.parametrize("name", ["vllm/helper.py", 'vllm/ünd "quoted".py'])
def test_a_file_that_the_patch_adds(tmp_path: Path, name: str) -> None:
    def helper(files: Tree) -> Tree:
        return files | {name: Entry(b"def helper():\n    return 1\n")}

    case = Case("", (Patch("0101", helper), Patch("0102", _CONFIG)), helper, {}, None)
    workshop = _dropped(tmp_path, case)
    offer(workshop, _of(dict(case.base), NEXT), NEXT)
    assert not command.begin(workshop.layout, NEXT, None, dry_run=True)
    assert f"{name} lacks 'def helper():'" in _report(workshop)


def test_a_file_that_was_renamed_since_is_said_to_be_unknown(tmp_path: Path) -> None:
    """The pin that has the text knows the file's first name only."""
    workshop = _dropped(tmp_path)
    motor = "vllm/motor.py"
    renamed = move(ENGINE, motor)(CASE.new_release())
    offer(workshop, _of(renamed, NEXT), NEXT)
    assert command.begin(workshop.layout, NEXT, None, dry_run=False)
    reverted = edit(motor, "engine_040 = 4000\n", "engine_040 = 40\n")(renamed)
    offer(workshop, _of(reverted, LAST), LAST)
    assert command.begin(workshop.layout, LAST, None, dry_run=True)
    assert f"(vLLM {NEXT} has no {ENGINE}: its lines were not looked for)" in _report(workshop)
