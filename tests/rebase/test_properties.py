"""Edits away from the hunks do not matter: rebased, edited then patched, patched then edited."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.git import Git
from rig.rebase.passage import FROM_REF, SERIES_REF, End, carry_over
from rig.series.pristine import PRISTINE_REF
from tests.series.releases import message
from tests.series.workshop import run_git

_LINES = [f"value_{at:03d} = {at}" for at in range(120)]
_PATCHED = (30, 31, 60, 90)  # lines that the two patches change
_NEAR = 4  # as far as a hunk's context reaches, and a line


def _patch(rows: list[str]) -> list[str]:
    return [f"{row}  # patched" if row in {_LINES[n] for n in _PATCHED} else row for row in rows]


_AWAY = [n for n in range(120) if all(abs(n - p) > _NEAR for p in _PATCHED)]


@st.composite
def edits(draw: st.DrawFn) -> dict[int, list[str]]:
    """Line number -> the lines that upstream puts in its place; none deletes it."""
    numbers = draw(st.sets(st.sampled_from(_AWAY), max_size=12))
    word = st.sampled_from(["", "x = 1", "value_030 = 30", "value_060 = 60  # patched", "é = 2"])
    return {n: draw(st.lists(word, max_size=3)) for n in sorted(numbers)}


def _edited(rows: list[str], changed: dict[int, list[str]]) -> list[str]:
    """Upstream's edits; lines are known by their text, so that patched ones count as the same."""
    by_text = {_LINES[n]: lines for n, lines in changed.items()}
    found: list[str] = []
    for row in rows:
        found += by_text.get(row, [row])
    return found


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base release and two patches on it."""
    folder = tmp_path_factory.mktemp("ground")
    run_git(folder, "init", "--quiet", "--initial-branch=rig")
    (folder / "file.py").write_text("\n".join(_LINES) + "\n")
    (folder / "other.py").write_text("\n".join(_LINES) + "\n")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "--quiet", "-m", "base")
    run_git(folder, "update-ref", FROM_REF, "HEAD")
    rows = list(_LINES)
    for number, at in (("0101", (30, 31, 60)), ("0102", (90,))):
        for n in at:
            rows[n] += "  # patched"
        (folder / "file.py").write_text("\n".join(rows) + "\n")
        text = message(number, f"Patch {number}")
        run_git(folder, "commit", "--quiet", "-a", "--file=-", stdin=text.encode())
    run_git(folder, "update-ref", SERIES_REF, "HEAD")
    return folder


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changed=edits())
def test_edits_away_from_the_hunks(ground: Path, changed: dict[int, list[str]]) -> None:
    run_git(ground, "checkout", "--quiet", "--force", "--detach", FROM_REF)
    new = _edited(_LINES, changed)
    (ground / "file.py").write_text("\n".join(new) + "\n")
    run_git(ground, "commit", "--quiet", "--allow-empty", "-a", "-m", "upstream")
    run_git(ground, "update-ref", PRISTINE_REF, "HEAD")
    git = Git(ground)
    commits = git.lines("rev-list", "--reverse", f"{FROM_REF}..{SERIES_REF}")
    passages = carry_over(git, git.line("rev-parse", PRISTINE_REF), commits, {})
    rebased = (ground / "file.py").read_text().split("\n")[:-1]
    assert rebased == _edited(_patch(_LINES), changed), "apply, then edit"
    assert [p.end for p in passages] == [End.PICKED, End.PICKED]
    # Edit, then apply: each patched line in its place, whatever look-alikes upstream put around.
    expected = list(_LINES)
    for n in _PATCHED:
        expected[n] += "  # patched"
    assert rebased == _edited(expected, changed)
    assert (ground / "other.py").read_text() == "\n".join(_LINES) + "\n"
    shutil.rmtree(ground / ".git" / "rebase-merge", ignore_errors=True)
