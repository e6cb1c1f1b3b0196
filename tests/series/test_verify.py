"""`rig verify` proves the series from nothing, and finds each thing that could be wrong."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.git import Git
from rig.pins import find_pin
from rig.series import verify as verify_module
from rig.series.applied import read_back
from rig.series.export import export_commits
from rig.series.listing import read_mails, series_digest
from rig.series.lock import Lock, lock_text
from rig.series.mailbox_apply import apply_mails
from rig.series.pristine import PRISTINE_REF, make_pristine
from rig.series.witnesses import find_quilt, tree_by_apply, tree_by_quilt

from .releases import PRIMARY, SECOND, message
from .test_refresh_pins import CONFLICT, NEAR
from .workshop import Workshop

FIRST, LAST = "0101-run-the-engine.patch", "0201-config-configure.patch"


def refused(workshop: Workshop, *versions: str) -> str:
    with pytest.raises(RigError) as caught:
        workshop.verify(*versions)
    assert caught.value.next_step, str(caught.value)
    assert workshop.leftovers() == []
    return str(caught.value)


def test_a_right_series(two_patches: Workshop) -> None:
    before = two_patches.patch_files()
    shutil.rmtree(two_patches.layout.build)
    said = "\n".join(two_patches.verify())
    assert "patches/series and the folder agree: 2 patches" in said
    for version, texts in ((PRIMARY, "2 texts byte for byte, 0"), (SECOND, "0 texts byte for")):
        assert f"vLLM {version}: applied, 2 patches: every blob and tree equals the lock's" in said
        assert f"vLLM {version}: exported again: {texts}" in said
    assert ("quilt push -a --fuzz=0" in said) == (find_quilt() is not None)
    assert two_patches.patch_files() == before
    assert not two_patches.tree().exists(), "a proof is no apply"
    assert two_patches.leftovers() == []


def test_one_pin_only(two_patches: Workshop) -> None:
    assert not any(PRIMARY in line for line in two_patches.verify(SECOND))


def test_an_edited_tree_does_not_matter(two_patches: Workshop) -> None:
    two_patches.write("vllm/engine.py", "mine = 1\n")
    two_patches.verify(PRIMARY)
    assert (two_patches.tree() / "vllm/engine.py").read_text() == "mine = 1\n"


def test_an_empty_series(workshop: Workshop) -> None:
    workshop.start()
    workshop.verify()


def test_every_flipped_byte_of_a_patch_is_found(two_patches: Workshop) -> None:
    """On the primary pin, wherever it is: header, message, statistics, diff."""
    path = two_patches.layout.patches / LAST
    right = path.read_bytes()
    step = len(right) // 23
    for at in range(5, len(right), step):
        path.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
        with pytest.raises(RigError):
            two_patches.verify(PRIMARY)
    path.write_bytes(right)
    two_patches.verify(PRIMARY)


def renewed(workshop: Workshop, version: str) -> None:
    """A lock that fits the texts as they are, as somebody who tampers would write it."""

    pin = find_pin(workshop.layout, version)
    mails = [m for _, m in read_mails(workshop.layout, pin)]
    folder = workshop.layout.build / "vllm-scratch"
    git = make_pristine(workshop.layout, pin, folder, None)
    apply_mails(git, mails, version)
    digest = series_digest(workshop.layout, pin)
    lock = read_back(Git(folder), version, digest, mails)
    workshop.layout.lock(version).write_text(lock_text(lock))
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"@@ -2,7 +2,7 @@", b"@@ -9,7 +9,7 @@", "an export gives other bytes"),
        (b" 2 files changed", b" 3 files changed", "an export gives other bytes"),
        (b"\ndiff --git", b"\n a note\n\ndiff --git", "an export gives other bytes"),
        (b"index ff7b028b", b"index ff7b0280", "an export gives other bytes"),
    ],
)
def test_a_tampered_text_with_a_lock_that_fits(
    two_patches: Workshop, old: bytes, new: bytes, said: str
) -> None:
    path = two_patches.layout.patches / LAST
    text = path.read_bytes()
    assert old in text
    path.write_bytes(text.replace(old, new, 1))
    renewed(two_patches, PRIMARY)
    assert said in refused(two_patches, PRIMARY)


def test_an_indented_diff_in_the_statistics(two_patches: Workshop) -> None:
    """What git am skips and quilt applies: found although the lock fits."""
    path = two_patches.layout.patches / LAST
    text = path.read_text()
    quoted = " --- a/README.md\n +++ b/README.md\n @@ -1 +1 @@\n -# Fäbricated vLLM\n +# Other\n"
    path.write_text(text.replace("\ndiff --git", f"\n{quoted}\ndiff --git", 1))
    renewed(two_patches, PRIMARY)
    refused(two_patches, PRIMARY)


# --- series and folder ----------------------------------------------------------------------


def test_a_patch_that_the_series_does_not_name(two_patches: Workshop) -> None:
    two_patches.layout.series.write_text(f"{FIRST}\n")
    said = refused(two_patches)
    assert "neither the series nor a pin knows" in said
    assert f"patches/{LAST}" in said


def test_a_patch_that_is_not_there(two_patches: Workshop) -> None:
    (two_patches.layout.patches / LAST).unlink()
    assert f"the series names {LAST}, but there is no such file" in refused(two_patches)


@pytest.mark.parametrize(
    "name", ["notes.txt", "0301-x.patch.orig", "0.9.0/0101-x.patch", f"{SECOND}/notes.txt",
             "pins/0.9.0.lock", ".0101-x.patch.new"]
)  # fmt: skip
def test_a_stray_file(two_patches: Workshop, name: str) -> None:
    path = two_patches.layout.patches / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("stray")
    with pytest.raises(RigError, match="neither the series nor a pin knows") as caught:
        two_patches.verify()
    assert name.split("/")[0] in str(caught.value.where)


def test_a_text_that_serves_no_pin(two_patches: Workshop) -> None:
    for version in (PRIMARY, SECOND):
        two_patches.skip(version, "0201", "nobody needs it any more")
    said = refused(two_patches)
    assert "this text serves no pin" in said
    assert LAST in said


# --- what a patch claims --------------------------------------------------------------------


def test_a_patch_that_changes_nothing(two_patches: Workshop) -> None:
    path = two_patches.layout.patches / LAST
    head, _, _ = path.read_text().partition("\ndiff --git")
    path.write_text(f"{head}\ndiff --git a/README.md b/README.md\n")
    refused(two_patches)
    with pytest.raises(RigError):
        renewed(two_patches, PRIMARY)


def test_a_patch_whose_lock_entry_is_empty(two_patches: Workshop) -> None:
    lock = Lock.model_validate(tomllib.loads(two_patches.layout.lock(PRIMARY).read_text()))
    hollow = lock.patch[0].model_copy(update={"file": ()})
    with pytest.raises(RigError, match=f"{FIRST} changes nothing"):
        verify_module._require_effect(lock.model_copy(update={"patch": (hollow,)}))


def test_a_missing_test_file(two_patches: Workshop) -> None:
    changed = message("0201", "[Config] Configure", Tests="tests/nowhere.py::test_x")
    two_patches.git("commit", "--quiet", "--amend", "-m", changed)
    two_patches.refresh()
    said = refused(two_patches)
    assert "names a test that is not there: tests/nowhere.py::test_x" in said
    assert LAST in said


def test_a_test_that_a_later_patch_brings(two_patches: Workshop) -> None:
    changed = message(
        "0201", "[Config] Configure", Tests="tests/test_config.py, tests/test_engine.py"
    )
    two_patches.git("commit", "--quiet", "--amend", "-m", changed)
    two_patches.refresh()
    two_patches.verify()


@pytest.mark.parametrize("version", [PRIMARY, SECOND])
def test_a_tampered_lock(two_patches: Workshop, version: str) -> None:
    path = two_patches.layout.lock(version)
    final = tomllib.loads(path.read_text())["final"]
    path.write_text(path.read_text().replace(final, "0" * 39 + "1"))
    assert "the lock says" in refused(two_patches)


def test_a_lock_is_missing(two_patches: Workshop) -> None:
    two_patches.layout.lock(SECOND).unlink()
    assert f"vLLM {SECOND} has no lock" in refused(two_patches)


# --- overrides ------------------------------------------------------------------------------


def test_an_override_that_is_not_needed(two_patches: Workshop) -> None:
    folder = two_patches.layout.patches / SECOND
    folder.mkdir()
    own = two_patches.apply(SECOND)

    (folder / FIRST).write_bytes(export_commits(own)[0].mail.raw)
    renewed(two_patches, SECOND)
    said = refused(two_patches, SECOND)
    assert f"the common text would serve vLLM {SECOND} as well" in said
    assert f"patches/{SECOND}/{FIRST}" in said


def test_an_override_that_says_something_else_in_its_message(two_patches: Workshop) -> None:
    """A reason of its own is a need: nothing to complain about."""
    folder = two_patches.layout.patches / SECOND
    folder.mkdir()

    text = export_commits(two_patches.apply(SECOND))[0].mail.raw
    (folder / FIRST).write_bytes(text.replace(b"Why it is so.", b"Why it is so here."))
    renewed(two_patches, SECOND)
    two_patches.verify(SECOND)


def test_an_override_with_other_bytes_than_its_export(two_patches: Workshop) -> None:
    two_patches.patch("0301", "Third", NEAR)
    two_patches.refresh()
    path = two_patches.layout.patches / SECOND / "0301-third.patch"
    path.write_bytes(path.read_bytes().replace(b" 1 file changed", b" 1 files changed"))
    renewed(two_patches, SECOND)
    assert "an export gives other bytes" in refused(two_patches, SECOND)


def test_a_skipped_patch_is_not_missed(two_patches: Workshop) -> None:
    two_patches.skip(SECOND, "0301", "vLLM 0.2.0 does not need it")
    two_patches.patch("0301", "Third", CONFLICT)
    two_patches.refresh()
    two_patches.verify()


# --- quilt ----------------------------------------------------------------------------------


def no_quilt(workshop: Workshop, tmp_path: Path) -> dict[str, str]:
    """A PATH that holds git and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("git", "sh"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return {"PATH": str(folder)}


@pytest.mark.skipif(find_quilt() is None, reason="quilt is not installed")
def test_quilt_where_the_path_holds_a_blank(two_patches: Workshop, tmp_path: Path) -> None:
    """quilt quotes none of its settings: it made folders beside the checkout, and failed."""
    tree = two_patches.layout.tree(PRIMARY)
    clone = tmp_path / "my rig" / "tree"
    Git(tmp_path).run("clone", "--quiet", tree, clone)
    git = Git(clone)
    git.run("fetch", "--quiet", "origin", f"+{PRISTINE_REF}:{PRISTINE_REF}")
    pin = find_pin(two_patches.layout, PRIMARY)
    mails = [mail for _, mail in read_mails(two_patches.layout, pin)]
    assert tree_by_quilt(git, mails, find_quilt() or "") == tree_by_apply(git, mails)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("my")] == ["my rig"]


def test_without_quilt_it_is_not_proven(two_patches: Workshop, tmp_path: Path) -> None:
    env = no_quilt(two_patches, tmp_path)
    done = two_patches.command_line("verify", SECOND, env=env).must_succeed()
    assert f"vLLM {SECOND}: NOT proven by quilt: it is not installed" in done.stdout
    said = two_patches.command_line("verify", "--require-quilt", SECOND, env=env).must_fail()
    assert "quilt is not installed" in said
    assert "install the package `quilt`" in said


@pytest.mark.skipif(find_quilt() is None, reason="quilt is not installed")
def test_with_quilt(two_patches: Workshop) -> None:
    done = two_patches.command_line("verify", "--require-quilt", SECOND).must_succeed()
    assert "NOT proven" not in done.stdout
    assert "proofs hold" in done.stdout


WITNESSES: list[tuple[str, str]] = [
    ("tree_by_am", "git am gives tree"),
    ("tree_by_apply", "git apply gives tree"),
]


@pytest.mark.parametrize(("name", "said"), WITNESSES)
def test_a_witness_that_disagrees(
    two_patches: Workshop, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    real: Callable[..., str] = getattr(verify_module, name)
    monkeypatch.setattr(verify_module, name, lambda git, mails: real(git, mails[:1]))
    assert said in refused(two_patches, PRIMARY)
