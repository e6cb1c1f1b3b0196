"""`rig anchors`: catch, compare with what is committed, write what was asked for."""

from __future__ import annotations

import json
import os
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


def anchors(layout: Layout, pin: Pin, python: Callable[[], Path], wanted: Wanted) -> int:
    """Run the catcher; 0 if nothing has an anchor that the record does not have.

    Args:
        pin: its release and series are run, unless a tree is named; its release alone as well,
            for a table.
        python: makes ready an environment with the libraries that vLLM needs; its interpreter.

    Raises:
        RigError: it cannot be run, or not be written.
    """
    _check(wanted)
    interpreter = python()
    before = _record(layout)
    tree = wanted.tree or apply(layout, pin).folder
    found = _run(layout, interpreter, wanted.names, lambda into: overlay.overlay_tree(tree, into))
    for line in report(found):
        out.print(line)
    if wanted.json:
        _write(wanted.json, json.dumps(list(found.raw), indent=1) + "\n")
    if wanted.table or wanted.record:
        _write_tables(layout, pin, interpreter, found, wanted)
    return _judged(before, found, whole=not wanted.names)


def _check(wanted: Wanted) -> None:
    """Refuse what cannot end well, before anything takes time."""
    if wanted.record and wanted.names:
        raise RigError(
            "the record holds all architectures, not some",
            next_step="./rig anchors --record, without --arch",
        )
    if wanted.tree and (wanted.record or wanted.table):
        raise RigError(
            "a table compares a pinned release with the series on it, not another tree",
            where=wanted.tree,
            next_step="leave --tree out; --json writes what a tree was found to have",
        )
    if wanted.tree and not (wanted.tree / "vllm" / "__init__.py").is_file():
        raise overlay.no_vllm(wanted.tree)
    for path in (wanted.json, wanted.table):
        if path and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise _cannot_write(path, "no file can be made there")


def _record(layout: Layout) -> Record | None:
    path = layout.root / RECORD
    if path.is_file():
        return read_record(path)
    console.print(f"no {RECORD}: there is nothing to compare with", markup=False)
    return None


def _judged(recorded: Record | None, found: Run, whole: bool) -> int:
    """Say what is wrong with a run, as the record has it; 1 if anything is."""
    wrong = [
        f"{v.architecture} has anchors, and streams its stem: the series lists its towers as clean"
        for v in found.verdicts
        if v.claims_too_much
    ]
    if recorded is not None:
        wrong += [
            f"{v.architecture} is clean in {RECORD}, and not here: {v.verdict} {v.reason}".rstrip()
            for v in no_longer_clean(recorded, found.verdicts)
        ]
        known = {row.architecture for row in recorded.rows}
        wrong += [
            f"{v.architecture} has anchors, and is not in {RECORD}"
            for v in found.verdicts
            if v.anchors and v.architecture not in known
        ]
        gone = sorted(known - {v.architecture for v in found.verdicts}) if whole else []
        if gone:
            out.print(f"in {RECORD} and not in this registry: {', '.join(gone)}", markup=False)
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
        log = layout.build / "anchors.log"  # outlives the run, which its errors point to
        log.unlink(missing_ok=True)
        how = worker_command(python, layout.root, package, log)
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
        raise _cannot_write(path, str(error.strerror)) from error
    console.print(f"written {path}", markup=False)


def _cannot_write(path: Path, why: str) -> RigError:
    return RigError(
        f"cannot write: {why}",
        where=path,
        next_step="name a file in a folder that exists and that you may write",
    )
