"""`rig anchors`: catch, compare with what is committed, write what was asked for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.anchors import overlay
from rig.anchors.answers import Record, no_longer_clean, read_record, rows
from rig.anchors.run import Run, catch, report, worker_command
from rig.anchors.table import document, table
from rig.console import console, out
from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Pin
from rig.series.apply import apply
from rig.series.listing import read_mails
from rig.series.pristine import PRISTINE_REF

RECORD = Path("docs") / "device-anchors.json"
DOCUMENT = Path("docs") / "device-anchors.md"


@dataclass(frozen=True)
class Wanted:
    """What was asked for.

    Attributes:
        tree: run this tree, instead of a pin's release with the series on it.
        names: only these architectures.
        json: where to write the answers.
        table: where to write the table, which compares with the pin's release as it came.
        record: whether to renew docs/device-anchors.json and the table in the .md beside it.
    """

    tree: Path | None = None
    names: tuple[str, ...] = ()
    json: Path | None = None
    table: Path | None = None
    record: bool = False


def anchors(layout: Layout, pin: Pin, python: Path, wanted: Wanted) -> int:
    """Run the catcher; 0 if nothing that is recorded as clean has an anchor.

    Args:
        pin: its release and series are run, unless a tree is named; its release alone as well,
            for a table.
        python: of an environment with the libraries that vLLM needs.

    Raises:
        RigError: it cannot be run, or not be written.
    """
    if wanted.record and wanted.names:
        raise RigError(
            "the record holds all architectures, not some",
            next_step="./rig anchors --record, without --arch",
        )
    tree = wanted.tree or apply(layout, pin).folder
    found = _run(layout, python, wanted.names, lambda into: overlay.overlay_tree(tree, into))
    if wanted.table or wanted.record:
        _write_tables(layout, pin, python, found, wanted)
    if wanted.json:
        _write(wanted.json, json.dumps(list(found.raw), indent=1) + "\n")
    for line in report(found):
        out.print(line)
    return _judged(layout, found)


def _judged(layout: Layout, found: Run) -> int:
    """Say what is wrong with a run, as the record has it; 1 if anything is."""
    wrong = [
        f"{v.architecture} is listed as clean, so its stem streams, and it has anchors"
        for v in found.verdicts
        if v.claims_too_much
    ]
    if (layout.root / RECORD).is_file():
        wrong += [
            f"{v.architecture} was clean and is not: {v.verdict} {v.reason}".rstrip()
            for v in no_longer_clean(read_record(layout.root / RECORD), found.verdicts)
        ]
    for line in wrong:
        out.print(f"FAILED {line}")
    return 1 if wrong else 0


def _write_tables(layout: Layout, pin: Pin, python: Path, series: Run, wanted: Wanted) -> None:
    release = _run(
        layout,
        python,
        wanted.names,
        lambda into: overlay.overlay_commit(layout.tree(pin.version), PRISTINE_REF, into),
        title=f"vLLM {pin.version} as released",
    )
    record = Record(
        pin.version, tuple(rows(release.verdicts, series.verdicts, patches_by_file(layout, pin)))
    )
    if wanted.table:
        _write(wanted.table, table(record))
    if wanted.record:
        path = layout.root / DOCUMENT
        try:
            text = document(path.read_text("utf-8"), record)
        except (OSError, ValueError) as error:
            raise RigError(
                f"the table has no place in the document: {error}",
                where=path,
                next_step="restore the document from git",
            ) from error
        _write(layout.root / RECORD, record.text())
        _write(path, text)


def patches_by_file(layout: Layout, pin: Pin) -> dict[str, list[str]]:
    """Each file that the series changes -> the numbers of the patches that do."""
    touched: dict[str, list[str]] = {}
    for _, mail in read_mails(layout, pin):
        for line in mail.diff.decode("utf-8", "replace").splitlines():
            if line.startswith("+++ b/"):
                touched.setdefault(line.removeprefix("+++ b/"), []).append(mail.number)
    return touched


def _run(
    layout: Layout,
    python: Path,
    names: Sequence[str],
    make: Callable[[Path], Path],
    title: str = "",
) -> Run:
    with _scratch() as scratch:
        package = make(scratch / "tree")
        how = worker_command(python, layout.root, package, scratch / "log")
        return catch(how, names or None, title)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rig-anchors-") as name:
        (Path(name) / "tree").mkdir()
        yield Path(name)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise RigError(
            f"cannot write: {error.strerror}",
            where=path,
            next_step="name a file in a folder that exists and that you may write",
        ) from error
    console.print(f"written {path}", markup=False)
