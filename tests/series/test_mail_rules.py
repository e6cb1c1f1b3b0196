"""What a patch file may hold, and why: each trap is shown once with the tool that falls into it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rig.errors import RigError

from .mail_kit import HEAD, QUOTED, STAT, am, mail, parse, quilt, quilt_only, refused
from .releases import trailers
from .workshop import run_git


def test_a_right_mail_is_read(diff: str) -> None:
    read = parse(mail(diff, trailer_text=trailers("0101", Requires="0001, 0002")))
    assert (read.number, read.subject) == ("0101", "Change one")
    assert (
        read.message == f"Change one\n\nWhy it is so.\n\n{trailers('0101', Requires='0001, 0002')}"
    )
    assert read.requires == ("0001", "0002")
    assert read.tests == ("tests/test_engine.py::test_engine",)
    assert read.diff.startswith(b"diff --git a/one.py b/one.py\n")


def test_a_right_mail_does_the_same_for_all_tools(ground: Path, diff: str) -> None:
    raw = mail(diff, "Prose: see (1), 2 apples, --- no, > quoted.\n\n  - a list\n  - of things")
    parse(raw)
    am(ground, raw)
    run_git(ground, "checkout", "--quiet", "HEAD~1")
    if shutil.which("quilt"):
        assert quilt(ground, raw) == 0
    else:
        run_git(ground, "apply", stdin=raw)
    assert (ground / "one.py").read_text() == "a = 1\nb = 22\nc = 3\n"
    assert (ground / "victim.py").read_text() == "a = 1\nb = 2\nc = 3\n"


# --- what goes wrong in silence -------------------------------------------------------------


@pytest.mark.parametrize("line", ["---", "--- ", "--- a note", "-----", "Index: one.py"])
def test_am_drops_the_rest_of_a_message(ground: Path, diff: str, line: str) -> None:
    raw = mail(diff, f"Kept.\n\n{line}\nLost.")
    if line != "-----":  # refused as well: whether it cuts depends on what follows
        am(ground, raw)
        assert "Lost." not in run_git(ground, "log", "-1", "--format=%B")
    assert "rule" in refused(raw)


def test_am_takes_a_from_line_for_the_next_mail(ground: Path, diff: str) -> None:
    line = "From somebody Mon Sep 17 00:00:00 2001"
    raw = mail(diff, f"Kept.\n\n{line}\nLost.")
    with pytest.raises(AssertionError):
        am(ground, raw)
    if shutil.which("quilt"):
        assert quilt(ground, raw) == 0, "quilt reads on"
    assert "another mail" in refused(raw)


@pytest.mark.parametrize(
    "line", ["From here 1x10:20 2004", "From me Mon Sep 17 00:00:00 2001", "From x 10:20:30 2004"]
)
def test_every_line_that_git_takes_for_the_next_mail(ground: Path, diff: str, line: str) -> None:
    raw = mail(diff, f"Kept.\n\n{line}\nLost.")
    folder = ground / "split"
    folder.mkdir()
    assert run_git(ground, "mailsplit", f"-o{folder}", stdin=raw).strip() == "2"
    refused(raw)


@pytest.mark.parametrize(
    "line", ["From: M. Allory <m@example.org>", "Date: Mon, 1 Jan 2001 00:00:00 +0000"]
)
def test_am_takes_author_and_date_from_the_message(ground: Path, diff: str, line: str) -> None:
    raw = mail(diff, f"{line}\n\nWhy.")
    am(ground, raw)
    author = run_git(ground, "log", "-1", "--format=%an %ad")
    assert "M. Allory" in author or "2001" in author
    assert "author or date" in refused(raw)


@quilt_only
@pytest.mark.parametrize("prefix", ["    ", "\t", " ", "X", "XX  ", ""])
def test_quilt_builds_another_tree_from_a_quoted_diff(ground: Path, diff: str, prefix: str) -> None:
    quoted = "".join(f"{prefix}{line}\n" for line in QUOTED.splitlines())
    raw = mail(diff, f"It undoes this:\n\n{quoted}\nWhy.")
    assert quilt(ground, raw) == 0
    assert "666" in (ground / "victim.py").read_text(), "quilt is cleverer than we thought"
    (ground / "victim.py").write_text("a = 1\nb = 2\nc = 3\n")
    assert "quilt takes this for a diff" in refused(raw) or not prefix


@quilt_only
@pytest.mark.parametrize(
    "quoted",
    [
        "  +++ b/victim.py\n  @@ -1,3 +1,3 @@\n   a = 1\n  -b = 2\n  +b = 666\n   c = 3",
        "diff --git a/victim.py b/victim2.py\nrename from victim.py\nrename to victim2.py",
        " *** a/victim.py\n --- b/victim.py\n ***************\n *** 1,3 ****\n   a = 1\n ! b = 2\n"
        "   c = 3\n --- 1,3 ----\n   a = 1\n ! b = 666\n   c = 3",
        "  Index: victim.py\n  2c2\n  < b = 2\n  ---\n  > b = 666",
    ],
    ids=["unified-half", "rename", "context", "normal"],
)
def test_other_diffs_that_patch_finds_in_a_message(ground: Path, diff: str, quoted: str) -> None:
    raw = mail(diff, f"Look:\n\n{quoted}\n\nWhy.")
    code = quilt(ground, raw)
    harmed = not (ground / "victim.py").exists() or "666" in (ground / "victim.py").read_text()
    assert code != 0 or harmed, "quilt is cleverer than we thought"
    refused(raw)


def test_am_drops_text_below_the_separator(ground: Path, diff: str) -> None:
    raw = mail(diff, stat=f"A note for the reviewers.\n{STAT}")
    am(ground, raw)
    assert "reviewers" not in run_git(ground, "log", "-1", "--format=%B")
    assert "git am drops it" in refused(raw)


def test_a_binary_patch_is_refused(ground: Path) -> None:
    (ground / "one.py").write_bytes(b"\0\1\2" * 30)
    binary = run_git(ground, "diff", "--full-index", "--binary")
    assert "binary" in refused(mail(binary))
    assert "binary" in refused(mail(run_git(ground, "diff", "--full-index")))


@quilt_only
@pytest.mark.parametrize("kind", ["empty", "mode"])
def test_quilt_cannot_read_a_name_with_blanks_without_lines(ground: Path, kind: str) -> None:
    (ground / "a b.py").write_text("" if kind == "empty" else "a = 1\n")
    run_git(ground, "add", ".")
    if kind == "mode":
        run_git(ground, "commit", "--quiet", "-m", "with blanks")
        (ground / "a b.py").chmod(0o755)
        run_git(ground, "add", ".")
    raw = mail(run_git(ground, "diff", "--cached", "--full-index"))
    run_git(ground, "reset", "--quiet", "--hard")
    assert quilt(ground, raw) != 0, "quilt is cleverer than we thought"
    assert "file name with blanks" in refused(raw)


def test_an_index_line_must_prove_something(diff: str) -> None:
    index = next(line for line in diff.splitlines() if line.startswith("index "))
    assert "zeroed" in refused(mail(diff.replace(index, f"index {'0' * 40}..{'0' * 40} 100644")))
    assert "not a full index" in refused(mail(diff.replace(index, "index 1234567..89abcde 100644")))


# --- the frame of a mail --------------------------------------------------------------------


@pytest.mark.parametrize("header", ["From: ", "Date: ", "Subject: "])
def test_a_header_is_missing(diff: str, header: str) -> None:
    head = "".join(x for x in HEAD.splitlines(True) if not x.startswith(header))
    assert f"no {header.strip()}" in refused(mail(diff, head=head))


def test_the_first_line_and_the_tag(diff: str) -> None:
    assert "first line" in refused(mail(diff, head=HEAD.replace("From 0000", "From 1234", 1)))
    assert "[PATCH]" in refused(mail(diff, head=HEAD.replace("[PATCH] ", "")))


@pytest.mark.parametrize(
    "raw",
    [b"", b"\n", b"no mail at all", b"From: x\n\nbody without separator", b"\xff\xfe\0\0" * 20],
)
def test_what_is_no_mail_is_refused(raw: bytes) -> None:
    assert "not a patch mail" in refused(raw)


@pytest.mark.parametrize(
    "subject",
    ["=?nonsense?q?x?=", "=?utf-8?b?!!!?= x", "ü =?UTF-8?q?x?=", "=?utf-8?q?=ff=fe?= x"],
)
def test_a_subject_that_cannot_be_decoded_is_no_traceback(diff: str, subject: str) -> None:
    head = HEAD.replace("Change one", subject)
    try:
        parse(mail(diff, head=head))
    except RigError as error:
        assert error.next_step


def test_carriage_returns(diff: str) -> None:
    assert "carriage return" in refused(mail(diff, "Why\r\nso."))
    assert "carriage return" in refused(mail(diff, head=HEAD.replace("one\n", "one\r\n")))


@pytest.mark.parametrize("name", ["101-x.patch", "0101-a b.patch", "0101-x.diff", "0101.patch"])
def test_a_wrong_file_name(diff: str, name: str) -> None:
    assert "NNNN-words.patch" in refused(mail(diff), name)
