"""What persons do between two runs: none of it is lost, and none taken for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError
from rig.pins import find_pin, primary_pin
from rig.rebase import command, outbox
from rig.rebase.state import read_state, tree_of
from rig.series import lock
from rig.series.apply import apply
from tests.series.releases import Entry, Tree, text
from tests.series.workshop import Workshop, run_git

from .conftest import Make, checkout_of, read_tree
from .corpus import (
    BASE,
    CASES,
    CONFIG,
    ENGINE,
    FIX,
    ONE,
    UPSTREAM,
    Case,
    Patch,
    both,
    edit,
    put,
    remove,
)

CONFLICT = next(c for c in CASES if c.name == "the same fix in other words")
PROBE = next(c for c in CASES if c.name == "the signature changes, the text still applies")
_TWO = Case(
    "two conflicts",
    (*ONE, Patch("0102", edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n"))),
    both(CONFLICT.upstream, edit(CONFIG, "config_005 = 5\n", "config_005 = 5 * 10\n")),
    {},
    None,
)


def _begun(case: Case, folder: Path) -> tuple[Workshop, Path]:
    workshop = checkout_of(case, folder / "w")
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    return workshop, tree_of(workshop.layout)


def _applied(workshop: Workshop) -> Tree:
    return read_tree(apply(workshop.layout, find_pin(workshop.layout, UPSTREAM)).folder)


def _answer(case: Case, path: str, old: bytes, new: bytes) -> bytes:
    return case.new_release()[path].content.replace(old, new)


def test_git_rebase_continue_goes_on_to_the_next_conflict(tmp_path: Path) -> None:
    """Both answers count: the committed one, and the one that lies in the work tree."""
    workshop, tree = _begun(_TWO, tmp_path)
    (tree / ENGINE).write_bytes(_answer(_TWO, ENGINE, b"4 * 1000", b"4_000"))
    run_git(tree, "add", ENGINE)
    with pytest.raises(AssertionError, match="could not apply"):
        run_git(tree, "rebase", "--continue")
    with pytest.raises(RigError, match="conflict of 0102-patch-0102"):
        command.proceed(workshop.layout)
    (tree / CONFIG).write_bytes(_answer(_TWO, CONFIG, b"5 * 10", b"5_0"))
    assert command.proceed(workshop.layout)
    applied = _applied(workshop)
    assert b"4_000" in applied[ENGINE].content
    assert b"5_0" in applied[CONFIG].content


def test_git_rebase_skip_does_not_give_one_patch_the_text_of_another(tmp_path: Path) -> None:
    workshop, tree = _begun(_TWO, tmp_path)
    with pytest.raises(AssertionError):
        run_git(tree, "rebase", "--skip")
    (tree / CONFIG).write_bytes(_answer(_TWO, CONFIG, b"5 * 10", b"5_0"))
    run_git(tree, "add", CONFIG)
    # The answer for 0102 is taken; the conflict of 0101 is there again, for a person's word.
    assert not command.proceed(workshop.layout)
    state = read_state(workshop.layout)
    assert state is not None
    assert state.stopped_at == "0101"
    assert command.proceed(workshop.layout, drop={"0101": "upstream has it in other words"})
    assert b"5_0" in _applied(workshop)[CONFIG].content


def test_git_rebase_abort_in_the_tree(tmp_path: Path) -> None:
    """The conflict is put there again; work that lies there is not thrown away unasked."""
    workshop, tree = _begun(CONFLICT, tmp_path)
    run_git(tree, "rebase", "--abort")
    (tree / ENGINE).write_bytes(_answer(CONFLICT, ENGINE, b"4 * 1000", b"4_000"))
    with pytest.raises(RigError, match="no rebase is under way"):
        command.proceed(workshop.layout)
    assert b"4_000" in (tree / ENGINE).read_bytes()
    run_git(tree, "checkout", "--quiet", ENGINE)
    assert not command.proceed(workshop.layout)
    assert b"<<<<<<<" in (tree / ENGINE).read_bytes()


def test_a_file_that_upstream_deleted_is_not_kept_unasked(tmp_path: Path) -> None:
    """Git leaves the patch's version without markers: to do nothing is no answer."""
    case = Case("deleted", ONE, remove(ENGINE), {}, None)
    workshop, tree = _begun(case, tmp_path)
    with pytest.raises(RigError, match="is not resolved") as raised:
        command.proceed(workshop.layout)
    assert "git add" in str(raised.value)
    assert "git rm" in str(raised.value)
    run_git(tree, "add", ENGINE)
    assert command.proceed(workshop.layout)
    assert ENGINE in _applied(workshop)


def test_a_file_that_the_patch_deletes_and_upstream_changed(tmp_path: Path) -> None:
    case = Case(
        "deleted here",
        (Patch("0101", both(FIX, remove(CONFIG))),),
        edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n"),
        {},
        None,
    )
    workshop, tree = _begun(case, tmp_path)
    with pytest.raises(RigError, match="is not resolved"):
        command.proceed(workshop.layout)
    (tree / CONFIG).unlink()
    assert command.proceed(workshop.layout)
    assert CONFIG not in _applied(workshop)


def test_a_new_file_that_gitignore_hides_is_not_lost(tmp_path: Path) -> None:
    workshop, tree = _begun(CONFLICT, tmp_path)
    (tree / ENGINE).write_bytes(_answer(CONFLICT, ENGINE, b"4 * 1000", b"4_000"))
    (tree / "generated").mkdir()
    (tree / "generated" / "table.py").write_text("a = 1\n")
    with pytest.raises(RigError, match="files in the tree that git does not know"):
        command.proceed(workshop.layout)


def test_an_answer_on_another_base_is_not_put_beside_its_target(tmp_path: Path) -> None:
    """0102's text was made below a 0101 that a person then makes anew: twins move under it."""
    body = [f"    step_{at}()" for at in range(8)]

    def twins(*above: str, last: str, upstream: bool = True) -> Entry:
        first = ["def first():", *body, "    close()" if upstream else "    end()", "", "", ""]
        second = ["def second():", *body, last, "", "", "", "tail = 1"]
        return text([*above, *first, *second])

    where = "vllm/twins.py"
    base = dict(CONFLICT.base) | {where: twins("head = 1", "", last="    end()", upstream=False)}
    case = Case(
        "twins",
        (
            Patch("0101", edit(where, "head = 1\n", "head = 2\n")),
            Patch(
                "0102",
                lambda f: f | {where: twins("head = 2", "", last="    stop()", upstream=False)},
            ),
        ),
        lambda f: f | {where: twins("head = 3", "", last="    close()")},
        {},
        None,
        base=base,
    )
    workshop, tree = _begun(case, tmp_path)
    (tree / where).write_bytes(twins("head = 4", "", last="    close()").content)
    assert not command.proceed(workshop.layout)
    (tree / where).write_bytes(twins("head = 4", "", last="    stop_and_close()").content)
    # The next run puts the first conflict there again.
    above = [f"row_{at} = {at}" for at in range(20)]
    assert not command.proceed(workshop.layout, forgotten=["0101"])
    (tree / where).write_bytes(twins("head = 4", *above, "", last="    close()").content)
    assert command.proceed(workshop.layout)
    right = twins("head = 4", *above, "", last="    stop_and_close()")
    assert _applied(workshop)[where] == right


def test_a_patch_that_is_changed_meanwhile(tmp_path: Path) -> None:
    """The tool says "or change the patch first": the changed text is carried then."""
    workshop = checkout_of(PROBE, tmp_path / "w")
    assert not command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    workshop.replace("vllm/run.py", "    engine.stop()\n", "    engine.stop_now()\n", version=BASE)
    workshop.git("add", "--all", version=BASE)
    workshop.git("commit", "--quiet", "--amend", "--no-edit", version=BASE)
    workshop.refresh()
    assert command.proceed(workshop.layout, accept=["0101"])
    assert b"engine.stop_now()" in _applied(workshop)["vllm/run.py"].content


@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize("again", ["begin", "proceed"])
def test_stopped_between_two_files_of_the_result(
    made: Make, monkeypatch: pytest.MonkeyPatch, files: int, again: str
) -> None:
    """Two pins may say then that they are the primary one: the next run finishes it."""
    workshop = made(next(c for c in CASES if c.name == "lines are added above"))
    real = lock.replace_file
    written: list[Path] = []

    def replace_file(path: Path, content: bytes) -> bool:
        if "patches" in path.relative_to(workshop.root).parts:
            if len(written) == files:
                raise KeyboardInterrupt
            written.append(path)
        return real(path, content)

    monkeypatch.setattr(outbox, "replace_file", replace_file)
    with pytest.raises(KeyboardInterrupt):
        command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    monkeypatch.undo()
    if again == "begin":
        assert command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    else:
        assert command.proceed(workshop.layout)
    assert primary_pin(workshop.layout).version == UPSTREAM
    assert workshop.verify()


def test_a_drop_of_what_upstream_lacks_asks_for_its_users(tmp_path: Path) -> None:
    case = Case(
        "dropped",
        (
            *ONE,
            Patch(
                "0102", edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n"), {"Requires": "0101"}
            ),
        ),
        CONFLICT.upstream,
        {},
        None,
    )
    workshop, _ = _begun(case, tmp_path)
    assert not command.proceed(workshop.layout, drop={"0101": "nobody needs this now"})
    state = read_state(workshop.layout)
    assert state is not None
    assert primary_pin(workshop.layout).version == BASE
    assert command.proceed(workshop.layout, accept=["0102"])
    assert find_pin(workshop.layout, UPSTREAM).skip == {"0101": "nobody needs this now"}
    assert workshop.verify()


def test_a_resolved_patch_whose_probe_fails_is_looked_at(tmp_path: Path) -> None:
    run = "vllm/run.py"
    case = Case(
        "both",
        (
            Patch(
                "0101",
                both(FIX, edit(run, "    pass\n", "    engine.stop()\n")),
                {"Probes": "symbol vllm.run:run"},
            ),
        ),
        both(CONFLICT.upstream, PROBE.upstream),
        {},
        None,
        base=PROBE.base,
    )
    workshop, tree = _begun(case, tmp_path)
    (tree / ENGINE).write_bytes(_answer(case, ENGINE, b"4 * 1000", b"4_000"))
    assert not command.proceed(workshop.layout)
    assert command.proceed(workshop.layout, accept=["0101"])


def test_what_cannot_be_proven_is_not_written(tmp_path: Path) -> None:
    """Upstream moves the test that a patch names: patches/ stays, and the rebase can be aborted."""
    test = "tests/test_engine.py"
    case = Case(
        "test moves",
        ONE,
        both(remove(test), put("tests/engine/test_it.py", "def test_engine():\n    pass\n")),
        {},
        None,
    )
    workshop = checkout_of(case, tmp_path / "w")
    before = read_tree(workshop.root / "patches")
    with pytest.raises(RigError, match="names a test that is not there"):
        command.begin(workshop.layout, UPSTREAM, None, dry_run=False)
    assert read_tree(workshop.root / "patches") == before
    command.abort(workshop.layout)
    assert read_tree(workshop.root / "patches") == before
