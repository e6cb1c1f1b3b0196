"""Which patches were shown to be missed by their tests, and what that rests on.

Running the tests of every patch twice takes minutes. `docs/absence/<version>.json` holds, per
patch, a digest of all that decides the answer: the patch's own change and those of the patches
that go with it, the files it touches as the whole series leaves them, its tests, and what the
series adds for tests to import. A patch whose digest differs is run again by `make test`; all of
them by `make test-full`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rig.absence import Verdict, left_out_with
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.series.applied import AppliedTree, commits_of_series, touched_files
from rig.series.mail import PatchMail


class Shown(BaseModel):
    """One patch: what its answer rests on, and the counts that were seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    seen: str


Record = dict[str, Shown]


def digests(applied: AppliedTree, mails: Sequence[PatchMail]) -> dict[str, str]:
    """Patch file name -> SHA-256 of all that decides whether its tests miss it."""
    git = Git(applied.folder)
    commits = dict(zip((m.number for m in mails), commits_of_series(git), strict=True))
    changes = {n: touched_files(git, f"{commit}^", commit) for n, commit in commits.items()}
    final = {f.path: f.after or "" for f in applied.changed}
    helpers = sorted(
        (path, blob)
        for path, blob in final.items()
        if path.startswith("tests/") and not Path(path).name.startswith("test_")
    )
    found = {}
    for mail in mails:
        together = sorted(left_out_with(mails, mail.number))
        tests = sorted({test.split("::")[0] for test in mail.tests})
        parts: list[object] = [helpers, list(mail.tests)]
        parts += [[(f.path, f.before, f.after) for f in changes[n]] for n in together]
        parts.append([(f.path, final.get(f.path, "")) for f in changes[mail.number]])
        # A test of upstream's own that the series does not change lies in no list of changes.
        parts.append([(t, git.run("rev-parse", f"HEAD:{t}").text.strip()) for t in tests])
        found[mail.name] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return found


def record_path(layout: Layout, version: str) -> Path:
    """Where the record of one pin lies."""
    return layout.root / "docs" / "absence" / f"{version}.json"


def read_record(layout: Layout, version: str) -> Record:
    """The record of a pin; empty if there is none.

    Raises:
        RigError: it cannot be read.
    """
    path = record_path(layout, version)
    if not path.exists():
        return {}
    try:
        raw = json.loads(path.read_text("utf-8"))
        return {name: Shown.model_validate(shown) for name, shown in raw.items()}
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise RigError(
            f"the record of the absence runs cannot be read: {error}",
            where=layout.shown(path),
            next_step="restore it from git, or remove it and run `./rig absence --record`",
        ) from error


def changed_patches(record: Record, now: dict[str, str]) -> list[str]:
    """The names, in order, of the patches that the record does not answer for."""
    return [
        name for name, digest in now.items() if name not in record or record[name].digest != digest
    ]


def write_record(
    layout: Layout, version: str, now: dict[str, str], verdicts: Sequence[Verdict]
) -> Path:
    """Take these verdicts into the record, and patches that are no longer there out of it."""
    record = read_record(layout, version)
    for verdict in verdicts:
        seen = f"with it {verdict.present}; without it {verdict.absent}"
        record[verdict.patch] = Shown(digest=now[verdict.patch], seen=seen)
    kept = {name: record[name].model_dump() for name in now if name in record}
    path = record_path(layout, version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return path
