"""Subjects, bodies and authors come back as they were, or are refused."""

from __future__ import annotations

import pytest

from .releases import PRIMARY, SECOND, message
from .test_refresh import THIRD_EDIT, refused, series
from .workshop import Workshop, run_git

# --- what a message, an author and a name may be ---------------------------------------------

SUBJECTS = [
    "[Platform] Run on Ray",
    "[Bugfix][Core] Two tags",
    "Grüße, 世界 and ✨",
    "A subject that is much longer than any mail header line may be, so that it is folded over "
    "several lines, and once more, because of its length",
    "Ünïcode_und_ein_sehr_langes_Wort_ohne_Leerzeichen" * 4,
    "Quotes \"double\" 'single' `back` and \\ slash",
    "a/b: c, d; e = f?",
    "=== !!! ===",
    "= equals at the start",
    "100% sure",
    "tab\tinside",
]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_survives(two_patches: Workshop, subject: str) -> None:
    two_patches.replace(*THIRD_EDIT)
    two_patches.commit(message("0301", subject))
    if "\t" in subject:
        refused(two_patches)
        return
    two_patches.refresh()
    name = series(two_patches)[-1]
    assert name.startswith("0301-") and len(name) <= 75 and name.isascii()
    assert two_patches.refresh() == []
    tree = two_patches.apply(SECOND)
    assert run_git(tree, "log", "-1", "--format=%s") == f"{subject}\n"


@pytest.mark.parametrize(
    "subject", ["[PATCH] twice", "Re: again", ": colon", "two  blanks", "=?utf-8?q?=41?="]
)
def test_a_subject_that_a_mail_cannot_carry(two_patches: Workshop, subject: str) -> None:
    two_patches.replace(*THIRD_EDIT)
    two_patches.commit(message("0301", subject))
    error = refused(two_patches)
    assert f"a mail cannot carry Subject {subject!r}" in error.what


BODIES = [
    "Ünïcode ✨ 世界.\n\n  * a list\n  * of two\n\nEnd.",
    "A line that is very long. " * 60,
    "One.\n\n\n\nTwo, after many blank lines.",
    "> quoted\n>> twice",
    "    code = 1\n    more = 2",
    "a--- b\n-- \nsignature",
    "From here on it is easy, and Date: is a word.",
    "Fixes the From: header.",
    "# looks like a comment",
    "diff is a program, Index is a word",
    "trailing blanks   \nnext",
]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_survives(two_patches: Workshop, body: str) -> None:
    """All of it but blanks at the ends of lines, which git itself strips."""
    two_patches.replace(*THIRD_EDIT)
    full = message("0301", "Third", body)
    two_patches.commit(full)
    if "\n\n\n" in body:
        assert "another message than its text says" in str(refused(two_patches))
        return
    two_patches.refresh()
    tree = two_patches.apply(SECOND)
    told = run_git(tree, "log", "-1", "--format=%B").splitlines()
    assert told[:-1] == [row.rstrip() for row in full.splitlines()]
    two_patches.verify(PRIMARY)


@pytest.mark.parametrize(
    "tail", ["---\n a note", "---\n\n a note", "---\n a/b | 2 +-"], ids=["note", "blank", "stat"]
)
def test_text_that_a_mail_would_drop_is_refused(two_patches: Workshop, tail: str) -> None:
    """Below `---` a mail holds what is not message: a commit's text there would be lost."""
    two_patches.replace(*THIRD_EDIT)
    two_patches.commit(message("0301", "Third") + tail + "\n")
    error = refused(two_patches)
    assert "0301" in str(error) or "Third" in str(error)


@pytest.mark.parametrize(
    "author",
    [
        "Doe, Jane <jane@example.org>",
        "Jürgen Müller <jm@example.org>",
        "李小龍 <bruce@example.org>",
        'Jim "The Hacker" O\'Neill <jim@example.org>',
        "dependabot[bot] <49699333+dependabot[bot]@users.noreply.example.org>",
    ],
)
def test_an_author_survives(two_patches: Workshop, author: str) -> None:
    two_patches.replace(*THIRD_EDIT)
    two_patches.commit(message("0301", "Third"), author=author)
    two_patches.refresh()
    tree = two_patches.apply(SECOND)
    assert run_git(tree, "log", "-1", "--format=%an <%ae>") == f"{author}\n"
    assert run_git(tree, "log", "-1", "--format=%ad") == "Tue Feb 3 04:05:06 2026 +0100\n"
    assert two_patches.refresh() == []


@pytest.mark.parametrize(
    "author", ["name@looks.like.mail <name@example.org>", "Very Long " * 12 + "<l@example.org>"]
)
def test_an_author_that_git_am_misreads_is_refused(two_patches: Workshop, author: str) -> None:
    two_patches.replace(*THIRD_EDIT)
    two_patches.commit(message("0301", "Third"), author=author)
    error = refused(two_patches)
    assert "git am would read" in error.what
    assert "--author" in str(error.next_step)
