"""What the catcher answers, read; and what two runs of it together say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rig.errors import RigError

CLEAN, ANCHOR, NO_TOWER, CANNOT = "clean", "anchor", "no tower", "cannot build"


@dataclass(frozen=True)
class Line:
    """A line of code that a weight at rest meets.

    Attributes:
        file: from the package on.
        number: of the line.
        code: its text.
        kind: `read` of a device or `compute` on the weight.
        harmless: it changes nothing.
        why: what it leads to, if it does.
        marked: whether the weight is in a marked tower, or the model marks none.
    """

    file: str
    number: int
    code: str
    kind: str
    harmless: bool
    why: str
    marked: bool

    @property
    def place(self) -> str:
        return f"{self.file.removeprefix('vllm/model_executor/models/')}:{self.number}"


@dataclass(frozen=True)
class Verdict:
    """One architecture, judged; see `tower_anchors.catching.Caught`, which it is read from."""

    architecture: str
    verdict: str
    reason: str = ""
    model: str = ""
    recipe: str = ""
    routed: str = ""
    towers: tuple[str, ...] = ()
    stem: bool = False
    weights: int = 0
    unmet: int = 0
    runs: int = 0
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def anchors(self) -> tuple[Line, ...]:
        """Lines that meet a weight of a tower, and matter."""
        return tuple(line for line in self.lines if line.marked and not line.harmless)

    @property
    def outside(self) -> tuple[Line, ...]:
        """The same for weights that no mark names: tower streaming leaves these where they are."""
        return tuple(line for line in self.lines if not line.marked and not line.harmless)

    @property
    def claims_too_much(self) -> bool:
        """Its stem streams, and that changes what it computes."""
        return self.stem and bool(self.anchors)


def read_answer(answer: Mapping[str, Any]) -> Verdict:
    """One answer of a worker."""
    lines = tuple(
        Line(
            file=found["site"]["file"],
            number=found["site"]["line"],
            code=found["site"]["code"],
            kind=found["kind"],
            harmless=found["harmless"],
            why=found["why"],
            marked=found["marked"],
        )
        for found in answer.get("findings", ())
    )
    return Verdict(
        architecture=answer["architecture"],
        verdict=answer["verdict"],
        reason=answer.get("reason", ""),
        model=answer.get("model", ""),
        recipe=answer.get("recipe", ""),
        routed=routed_by(answer.get("marks", ())),
        towers=tuple(answer.get("towers", ())),
        stem=bool(answer.get("stem", False)),
        weights=answer.get("parameters", 0),
        unmet=len(answer.get("unmet", ())),
        runs=len(answer.get("runs", ())),
        lines=lines,
        notes=tuple(answer.get("notes", ())),
        seconds=answer.get("seconds", 0.0),
    )


def routed_by(marks: Iterable[Sequence[Any]]) -> str:
    """Which mark hands a model's towers to the offloader, and for what."""
    said = []
    for how, modalities, names in marks:
        if names:
            kind = "composite" if "composite" in how else "tower"
            said.append(f"{kind}: {', '.join(modalities)}")
    return "; ".join(dict.fromkeys(said))


@dataclass(frozen=True)
class Row:
    """One architecture in the table.

    Attributes:
        verdict: with the series.
        found: places of the anchors on the release as it came, or why nothing was found out.
        left: places of those that are there with the series.
        fixed_by: numbers of the patches that touch a file of an anchor that is gone.
        outside: places of lines that meet a weight of no tower, with the series.
        weights: how many rested in its towers.
        unmet: how many of them no run came across.
    """

    architecture: str
    verdict: str
    reason: str
    routed: str
    towers: tuple[str, ...]
    found: tuple[str, ...]
    left: tuple[str, ...]
    fixed_by: tuple[str, ...]
    outside: tuple[str, ...]
    weights: int
    unmet: int
    stem: bool
    recipe: str


def rows(
    release: Iterable[Verdict], series: Iterable[Verdict], touched: Mapping[str, Sequence[str]]
) -> list[Row]:
    """Compare the release as it came with the series on it.

    Args:
        touched: file -> numbers of the patches that touch it.
    """
    before = {v.architecture: v for v in release}
    made = []
    for after in sorted(series, key=lambda v: v.architecture.lower()):
        was = before.get(after.architecture, Verdict(after.architecture, CANNOT))
        still = {(line.file, line.code, line.kind) for line in after.anchors}
        gone = [a for a in was.anchors if (a.file, a.code, a.kind) not in still]
        if after.verdict == CANNOT or was.verdict == CANNOT:
            gone = []
        numbers = {n for line in gone for n in touched.get(line.file, ())}
        made.append(
            Row(
                architecture=after.architecture,
                verdict=after.verdict,
                reason=after.reason,
                routed=after.routed,
                towers=after.towers,
                found=tuple(line.place for line in was.anchors),
                left=tuple(line.place for line in after.anchors),
                fixed_by=tuple(sorted(numbers)),
                outside=tuple(line.place for line in after.outside),
                weights=after.weights,
                unmet=after.unmet,
                stem=after.stem,
                recipe=after.recipe,
            )
        )
    return made


@dataclass(frozen=True)
class Record:
    """What is committed: the rows of one release.

    Attributes:
        release: its version.
        rows: an architecture each.
    """

    release: str
    rows: tuple[Row, ...] = field(default=())

    def text(self) -> str:
        """As JSON, a line for each architecture, so that a change can be read."""
        body = ",\n".join(json.dumps(asdict(row), sort_keys=True) for row in self.rows)
        return f'{{"release": {json.dumps(self.release)}, "rows": [\n{body}\n]}}\n'


def read_record(path: Path) -> Record:
    """Read what is committed.

    Raises:
        RigError: it is not there or not as it was written.
    """
    try:
        raw = json.loads(path.read_text("utf-8"))
        return Record(raw["release"], tuple(_row(row) for row in raw["rows"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RigError(
            f"the record of the last run cannot be read: {error}",
            where=path,
            next_step="restore it from git, or write it anew: ./rig anchors --record",
        ) from error


def _row(written: Mapping[str, Any]) -> Row:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in written.items()
    }
    return Row(**values)


def no_longer_clean(expected: Record, found: Iterable[Verdict]) -> list[Verdict]:
    """Architectures that the record calls clean and this run does not."""
    clean = {row.architecture for row in expected.rows if row.verdict == CLEAN}
    return [v for v in found if v.architecture in clean and v.verdict != CLEAN]
