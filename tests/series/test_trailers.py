"""The trailers that end a patch's message."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.git import Git
from rig.series.mail import parse_mail

from .mail_kit import NAME, mail, parse, refused
from .releases import trailers
from .workshop import run_git

# --- trailers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Rig_Number": None}, "no Rig-Number: trailer"),
        ({"Upstream_Status": None}, "no Upstream-Status: trailer"),
        ({"Removal_Plan": None}, "no Removal-Plan: trailer"),
        ({"Requires": None}, "no Requires: trailer"),
        ({"Tests": None}, "no Tests: trailer"),
        ({"Rig_Number": "0102"}, "not the number of the file name"),
        ({"Upstream_Status": "Done"}, "none of Pending"),
        ({"Upstream_Status": "Pending soon"}, "none of Pending"),
        ({"Upstream_Status": "Submitted"}, "none of Pending"),
        ({"Upstream_Status": "Submitted PR 12"}, "none of Pending"),
        ({"Upstream_Status": "Backport"}, "none of Pending"),
        ({"Upstream_Status": "Backport main"}, "none of Pending"),
        ({"Upstream_Status": "Inappropriate"}, "none of Pending"),
        ({"Requires": "0001 0002"}, "not a patch number"),
        ({"Requires": "the first one"}, "not a patch number"),
        ({"Requires": ""}, "Requires: is empty"),
        ({"Tests": ""}, "Tests: is empty"),
        ({"Removal_Plan": ""}, "Removal-Plan: is empty"),
        ({"Removed_by": "nobody"}, "unknown trailer Removed-by:"),
    ],
)
def test_a_trailer_rule(diff: str, change: dict[str, str | None], said: str) -> None:
    assert said in refused(mail(diff, trailer_text=trailers("0101", **change)))


@pytest.mark.parametrize(
    "status",
    [
        "Pending",
        "Submitted https://example.org/pull/1",
        "Backport 0123abc",
        "Inappropriate it is for old boards only",
    ],
)
def test_every_upstream_status(diff: str, status: str) -> None:
    parse(mail(diff, trailer_text=trailers("0101", Upstream_Status=status)))


def test_a_trailer_twice(diff: str) -> None:
    twice = trailers("0101") + "\nUpstream-Status: Pending"
    assert "Upstream-Status: appears twice" in refused(mail(diff, trailer_text=twice))


def test_trailers_above_the_last_paragraph_are_none(diff: str) -> None:
    said = refused(mail(diff, trailer_text=f"{trailers('0101')}\n\nOne more thing."))
    assert "no Rig-Number: trailer" in said


def test_all_broken_rules_are_listed_at_once(diff: str) -> None:
    said = refused(mail(diff, trailer_text=trailers("0101", Tests=None, Upstream_Status="Done")))
    assert "breaks 2 of the rules" in said
    assert "no Tests: trailer" in said
    assert "none of Pending" in said


def test_a_users_trailer_settings_change_nothing(
    diff: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[trailer]\n\tseparators = %\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "config", "trailer.separators", "%")
    run_git(tmp_path, "config", "trailer.tests.key", "Tested: ")
    inside = tmp_path / "inside"
    inside.mkdir()
    parse_mail(NAME, mail(diff), Git(inside))
