"""Whatever a person commits: it comes back exactly for all tools, or is refused with a reason."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.errors import RigError

from .conftest import reopen
from .releases import PRIMARY, Entry, message, release_files
from .workshop import Workshop, run_git, write_entry

LINES = st.text(
    st.characters(
        codec="utf-8", exclude_categories=("Cs", "Cc"), include_characters="\t\x0c\u2028\x85"
    ),
    max_size=12,
) | st.sampled_from(
    ["", "---", "-- ", "+++ b/x", "--- a/x", "@@ -1 +1 @@", "From me", "diff --git a/x b/x",
     "Index: x", "\\ No newline at end of file", "index 1..2", "GIT binary patch"]
)  # fmt: skip
ENDINGS = st.sampled_from(["\n", "\n", "\n", "\r\n"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A text file: any line ends, with a final newline or without, perhaps empty."""
    ending = draw(ENDINGS)
    rows = draw(st.lists(LINES, max_size=14))
    return (ending.join(rows) + (ending if draw(st.booleans()) else "")).encode()


CONTENTS = texts() | st.binary(max_size=24) | st.just(b"")
NAMES = st.sampled_from(
    ["a.py", "b/c.py", "b/d e.py", "ü/ß.py", "z.sh", "link", "tests/test_x.py", 'q"uote.py',
     "-dash.py", "b/-- .py", "tab\tname", "back\\slash", "#hash", "é.log"]
)  # fmt: skip


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """A file, an executable or a symbolic link."""
    mode = draw(st.sampled_from(["100644", "100644", "100755", "120000"]))
    if mode == "120000":
        return Entry(draw(st.sampled_from(["a.py", "../x", "nowhere ü"])).encode(), mode)
    return Entry(draw(CONTENTS), mode)


CHANGES = st.lists(
    st.tuples(NAMES, entries() | st.none() | NAMES | st.integers(0, 9)), min_size=1, max_size=4
)


def make(tree: Path, changes: list[tuple[str, Entry | str | int | None]]) -> None:
    """Write, delete (None), rename (a name) or edit in the middle (a number)."""
    for name, change in changes:
        place = tree / name
        if isinstance(change, Entry) or change is None:
            if change is not None or place.is_symlink() or place.exists():
                write_entry(place, change)
        elif not place.is_file() or place.is_symlink():
            continue
        elif isinstance(change, str):
            target = tree / change
            target.parent.mkdir(parents=True, exist_ok=True)
            place.rename(target)
        else:
            rows = place.read_bytes().split(b"\n")
            rows.insert(min(change, len(rows)), b"inserted")
            place.write_bytes(b"\n".join(rows))


@pytest.fixture(scope="module")
def one_pin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of one pin, applied, with an empty series."""
    folder = tmp_path_factory.mktemp("one-pin")
    Workshop(folder, {PRIMARY: release_files(PRIMARY)}).start()
    return folder


@given(series=st.lists(CHANGES, min_size=1, max_size=4))
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_commits_come_back_or_are_refused(
    one_pin: Path, series: list[list[tuple[str, Entry | str | int | None]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(one_pin, Path(folder) / "w", symlinks=True)
        come_back_or_are_refused(reopen(Path(folder) / "w"), series)


def come_back_or_are_refused(
    workshop: Workshop, series: list[list[tuple[str, Entry | str | int | None]]]
) -> None:
    tree = workshop.tree()
    number = 301
    for changes in series:
        make(tree, changes)
        workshop.commit(message(f"0{number}", f"Number {number}"))
        if run_git(tree, "diff-tree", "HEAD~1", "HEAD"):
            number += 1
        else:
            run_git(tree, "reset", "--quiet", "--hard", "HEAD~1")
    made = workshop.git("rev-parse", "HEAD^{tree}").strip()
    before = workshop.patch_files()
    try:
        workshop.refresh()
    except RigError as error:
        assert error.next_step
        assert workshop.patch_files() == before
        assert "binary" in str(error) or "file name" in str(error), str(error)
        return
    assert workshop.git("rev-parse", "HEAD^{tree}").strip() == made
    assert workshop.git("status", "--porcelain") == ""
    lock = tomllib.loads(workshop.layout.lock(PRIMARY).read_text())
    assert lock["final"] == made
    # From nothing: the lock's trees come out, for an apply and for all the other tools.
    said = "\n".join(workshop.verify())
    assert f"vLLM {PRIMARY}: applied, {number - 301} patches" in said
