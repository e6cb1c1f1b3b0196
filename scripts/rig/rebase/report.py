"""The verdicts for people (a table, Markdown) and for programs (JSON)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from rig.console import out
from rig.rebase.left_out import NeededAgain
from rig.rebase.verdict import Judged, Verdict
from rig.series.lock import replace_file

_NEEDED_AGAIN = "left out, and gone upstream"
_FINE = (Verdict.CLEAN, Verdict.MOVED)


@dataclass(frozen=True)
class Report:
    """What one run found.

    Args:
        old, new: names of the trees, e.g. "vLLM 0.33.0".
        judged: a verdict per patch.
        skipped: patch number -> why the new pin leaves it out.
        needed_again: patches that the old pin leaves out, and whose lines the new release lacks.
        requirements: what the new release asks for otherwise.
        tests: what the patches name to be run, those first that changed.
        seconds: how long the rebase itself took, and the whole run.
        compared: for a release that is pinned already: how the result differs from its lock.
    """

    old: str
    new: str
    judged: tuple[Judged, ...]
    skipped: dict[str, str]
    needed_again: tuple[NeededAgain, ...]
    requirements: tuple[str, ...]
    tests: tuple[str, ...]
    rebase_seconds: float
    seconds: float
    compared: str = ""

    @property
    def waiting(self) -> list[Judged]:
        """The patches that need a person."""
        return [j for j in self.judged if j.needs_a_person]

    def summary(self) -> str:
        """One line: how many patches got which verdict, how many hunks moved or conflict."""
        counts = Counter(j.verdict for j in self.judged)
        said = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
        moved = sum(len(j.moved) for j in self.judged)
        conflicts = sum(len(j.conflicts) for j in self.judged)
        if self.needed_again:
            said += f", {len(self.needed_again)} {_NEEDED_AGAIN}"
        return (
            f"{self.old} -> {self.new}: {len(self.judged)} patches: {said}; {moved} hunks moved, "
            f"{conflicts} files in conflict; git rebase {self.rebase_seconds:.1f} s, "
            f"all {self.seconds:.1f} s"
        )


def print_report(report: Report) -> None:
    """The table on the terminal; patches that nothing happened to share one line."""
    table = Table(box=None, pad_edge=False)
    for column in ("patch", "verdict", "what was seen"):
        table.add_column(column, overflow="fold")
    quiet = [j.number for j in report.judged if j.verdict in _FINE and not j.notes]
    for one in report.judged:
        if one.number in quiet:
            continue
        style = "bold red" if one.needs_a_person else ""
        notes = list(one.notes) + [f"moved: {len(one.moved)} hunks"] * bool(one.moved)
        table.add_row(one.number, str(one.verdict), "\n".join(notes), style=style)
    for again in report.needed_again:
        table.add_row(again.number, _NEEDED_AGAIN, again.said, style="bold red")
    for number, why in report.skipped.items():
        table.add_row(number, "left out", why)
    if table.row_count:
        out.print(table)
    if quiet:
        out.print(f"clean or only moved: {' '.join(quiet)}")
    for line in report.requirements[:20]:
        out.print(f"requirement: {line}", markup=False)
    if len(report.requirements) > 20:
        out.print(f"and {len(report.requirements) - 20} more requirements: see the report")
    out.print(report.summary(), markup=False)
    if report.compared:
        out.print(report.compared, markup=False)


def write_report(report: Report, folder: Path) -> list[Path]:
    """report.md and report.json in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "report.md", folder / "report.json"]
    replace_file(paths[0], markdown(report).encode("utf-8", "replace"))
    raw = asdict(report) | {"summary": report.summary()}
    replace_file(paths[1], (json.dumps(raw, indent=1, ensure_ascii=True) + "\n").encode())
    return paths


def markdown(report: Report) -> str:
    """The whole report: verdicts, range-diffs, both sides of each conflict, requirements."""
    parts = [f"# {report.old} to {report.new}", "", report.summary(), ""]
    if report.compared:
        parts += [report.compared, ""]
    parts += ["| patch | verdict | hunks moved | what was seen |", "|---|---|---|---|"]
    for one in report.judged:
        mark = " (needs you)" if one.needs_a_person else ""
        notes = "<br>".join(_cell(n) for n in one.notes)
        parts.append(f"| {one.name} | {one.verdict}{mark} | {len(one.moved)} | {notes} |")
    parts += [
        f"| {again.number} | {_NEEDED_AGAIN} (needs you) | | {_cell(again.said)} |"
        for again in report.needed_again
    ]
    parts += [f"| {n} | left out | | {_cell(why)} |" for n, why in report.skipped.items()]
    parts += _section("Requirements that changed", report.requirements)
    parts += _section("Tests to run", report.tests)
    for one in report.judged:
        if one.conflicts or one.range_diff:
            parts += ["", f"## {one.name}: {one.verdict}"]
            parts += [line for hunk in one.moved for line in (f"- {hunk}",)]
        for file in one.conflicts:
            sides = {1: "the old release", 2: "the new release", 3: "the patch"}
            have = ", ".join(sides[s] for s in file.stages)
            parts += ["", f"### {file.path} (in {have})", "", *_fenced(file.text, "diff")]
        if one.range_diff:
            parts += ["", *_fenced(one.range_diff, "")]
    return "\n".join(parts) + "\n"


def _section(title: str, rows: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *(f"- {_cell(row)}" for row in rows)] if rows else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _fenced(text: str, language: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}{language}", text.rstrip("\n"), fence]
