"""What became of each patch, from its two commits and what its probes saw. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rig.git import Git
from rig.probes.look import Sighting, State
from rig.rebase.diffs import effect, moves
from rig.rebase.merged import upstream_has
from rig.rebase.passage import ConflictFile, End, Passage
from rig.rebase.whereabouts import Rename, followed, where_its_lines_are
from rig.series.export import patch_bytes, verbatim_patch_id
from rig.series.mail import PatchMail


class Verdict(StrEnum):
    """What became of one patch."""

    CLEAN = "clean"
    MOVED = "moved"
    PARTLY_MERGED = "partly merged"
    MERGED = "merged"
    EMPTY = "empty, not shown to be merged"
    CONFLICT = "conflict"
    TARGET_MOVED = "target moved"
    TARGET_REMOVED = "target removed"
    PROBE_FAILED = "probe failed"
    DEPENDS = "depends on dropped"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class Judged:
    """One patch on the new release.

    Args:
        name: its file name.
        verdict: the worst that is true of it.
        notes: sentences: what moved, what is missing, what a probe saw.
        moved: per hunk that stands elsewhere, e.g. "vllm/envs.py: +12".
        needs_a_person: the rebase does not end before somebody has looked.
        same_text: it does exactly what it did: the same lines between the same lines.
        range_diff: old against new, when they differ.
        conflicts: the three sides of each conflict.
        evidence: for a patch that upstream has: what says so.
    """

    number: str
    name: str
    verdict: Verdict
    notes: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    needs_a_person: bool = False
    same_text: bool = False
    range_diff: str = ""
    conflicts: tuple[ConflictFile, ...] = ()
    evidence: str = ""


@dataclass
class Bench:
    """What judging needs.

    Args:
        git: the repository with both releases.
        exporter: one without configuration that sees its objects, for exact patch bytes.
        onto: the new release.
        accepted: patches whose failed probes a person has accepted.
        dropped: patches that a person drops.
        missed: those of them whose lines the new release does not have.
        renames: path in the old release -> its new name.
    """

    git: Git
    exporter: Git
    onto: str
    accepted: Set[str] = field(default_factory=set)
    dropped: Set[str] = field(default_factory=set)
    missed: Set[str] = field(default_factory=set)
    renames: Mapping[str, Rename] = field(default_factory=dict)


def judge(
    bench: Bench,
    passages: Sequence[Passage],
    mails: Mapping[str, PatchMail],
    sightings: Sequence[Sighting],
) -> list[Judged]:
    """A verdict for each passage.

    Args:
        bench: where.
        passages: one run of `carry_over`.
        mails: patch number -> the text that was carried.
        sightings: what the probes saw in the new release.
    """
    judged = []
    gone: dict[str, Verdict] = {}
    for passage in passages:
        mail = mails[passage.number]
        one = _one(bench, passage, mail)
        one = _with_probes(one, [s for s in sightings if s.patch == mail.name], bench.accepted)
        missing = [n for n in mail.requires if n in gone]
        if missing:
            one = _with_missing(one, {n: gone[n] for n in missing}, bench.dropped)
        one = _with_missed(one, sorted(bench.missed & set(mail.requires)), bench.accepted)
        if one.verdict in (Verdict.MERGED, Verdict.EMPTY) or passage.end is End.CONFLICT:
            gone[passage.number] = one.verdict
        judged.append(one)
    return _keep_what_is_required(judged, mails, bench.dropped)


def _one(bench: Bench, passage: Passage, mail: PatchMail) -> Judged:
    number, name = passage.number, mail.name
    if passage.end is End.CONFLICT:
        verdict, notes = _kind_of_conflict(bench, passage)
        return Judged(
            number, name, verdict, notes, needs_a_person=True, conflicts=passage.conflicts
        )
    if passage.result is None:
        witness = upstream_has(bench.git, passage.commit, bench.onto)
        said = mail.trailers.get("Upstream-Status", ("",))[0]
        notes = (witness.found,) + ((said,) if said.startswith(("Submitted", "Backport")) else ())
        if witness.agrees:
            return Judged(number, name, Verdict.MERGED, notes, evidence=witness.found)
        asked = number not in bench.dropped
        return Judged(number, name, Verdict.EMPTY, notes, needs_a_person=asked)
    return _compare(bench, passage, passage.result, mail)


def _compare(bench: Bench, passage: Passage, result: str, mail: PatchMail) -> Judged:
    number, name = passage.number, mail.name
    old, new = patch_bytes(bench.exporter, passage.commit), patch_bytes(bench.exporter, result)
    moved = moves(old, new)
    same = verbatim_patch_id(old, bench.exporter) == verbatim_patch_id(new, bench.exporter)
    if passage.end is End.RESOLVED:
        verdict = Verdict.RESOLVED
        left, come = effect(old) - effect(new), effect(new) - effect(old)
        said = (
            "answered by a person's text: "
            f"{left.total()} of its changed lines are not in it, {come.total()} are new",
        )
        return Judged(number, name, verdict, said, moved, range_diff=_range(bench, passage))
    if same:
        verdict = Verdict.MOVED if moved else Verdict.CLEAN
        return Judged(number, name, verdict, moved=moved, same_text=True)
    notes: list[str] = []
    verdict = Verdict.MOVED
    elsewhere = followed(old, new, bench.renames, number, mail.message)
    if elsewhere:
        verdict = Verdict.TARGET_MOVED
        notes += elsewhere
    now = effect(new)
    lost = effect(old) - now
    if elsewhere:  # compared under the new name, where that is known
        there, to = {path for path, _ in now}, {p: r.new for p, r in bench.renames.items()}
        before = Counter({(to.get(p, p), line): n for (p, line), n in effect(old).items()})
        lost = Counter({at: n for at, n in (before - now).items() if at[0] in there})
    if lost:
        verdict = verdict if elsewhere else Verdict.PARTLY_MERGED
        files = sorted({path for path, _ in lost})
        notes.append(f"{lost.total()} of its lines are there already, in {', '.join(files)}")
    if not notes:
        notes.append("lines around a hunk changed")
    return Judged(number, name, verdict, tuple(notes), moved, range_diff=_range(bench, passage))


def _range(bench: Bench, passage: Passage) -> str:
    assert passage.result is not None
    done = bench.git.run(
        "range-diff", "--no-color", "--creation-factor=100",
        f"{passage.commit}^..{passage.commit}", f"{passage.result}^..{passage.result}",
        check=False,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def _kind_of_conflict(bench: Bench, passage: Passage) -> tuple[Verdict, tuple[str, ...]]:
    notes = []
    kinds = set()
    came_from = {rename.new: rename for rename in bench.renames.values()}
    patch = patch_bytes(bench.exporter, passage.commit)
    for file in passage.conflicts:
        came = came_from.get(file.path)
        if came is not None:
            notes.append(f"{came}: git merges it there")
        if file.stages == (1, 3):  # the new release has no such file
            others = where_its_lines_are(bench.git, bench.onto, patch, file.path)
            rename = bench.renames.get(file.path)
            kinds.add(Verdict.TARGET_MOVED if others or rename else Verdict.TARGET_REMOVED)
            notes.append(_of_a_file_that_is_gone(file.path, rename, others))
        elif file.stages == (2, 3):
            kinds.add(Verdict.CONFLICT)
            notes.append(f"{file.path}: upstream adds a file of this name itself")
        elif file.stages == (1, 2):
            kinds.add(Verdict.CONFLICT)
            notes.append(f"{file.path}: upstream changed it, and the patch deletes it")
        elif file.stages == (3,):
            kinds.add(Verdict.TARGET_MOVED)
            notes.append(f"{file.path}: upstream gave its folder another name")
        elif others := where_its_lines_are(
            bench.git, bench.onto, patch, came.old if came else file.path, file.path
        ):
            kinds.add(Verdict.TARGET_MOVED)
            notes.append(f"{file.path}: the lines are no longer there, but in {', '.join(others)}")
        else:
            kinds.add(Verdict.CONFLICT)
            notes.append(f"{file.path}: both sides changed the same lines")
    for verdict in (Verdict.CONFLICT, Verdict.TARGET_REMOVED, Verdict.TARGET_MOVED):
        if verdict in kinds:
            return verdict, tuple(notes)
    return Verdict.CONFLICT, tuple(notes)


def _of_a_file_that_is_gone(path: str, rename: Rename | None, others: Sequence[str]) -> str:
    said = f"{path} is gone"
    if rename is not None:
        said += f"; {rename}"
    if others:
        said += f"; its lines are in {', '.join(others)}"
    places = list(dict.fromkeys([*([rename.new] if rename else []), *others]))
    if places:
        said += f". Next: make its change in {' or '.join(places)}, then `git rm {path}` there"
    return said


def _with_probes(one: Judged, seen: Sequence[Sighting], accepted: Set[str]) -> Judged:
    failed = [s for s in seen if s.state is not State.HOLDS]
    if not failed or one.verdict in (Verdict.MERGED, Verdict.EMPTY):
        return one
    notes = (*one.notes, *(f"probe: {s.probe}: {s.said}" for s in failed))
    if one.needs_a_person or one.number in accepted:
        return replace(one, notes=notes)
    return replace(one, verdict=Verdict.PROBE_FAILED, notes=notes, needs_a_person=True)


def _with_missing(one: Judged, gone: Mapping[str, Verdict], dropped: Set[str]) -> Judged:
    said = tuple(f"it requires {n}: {verdict}" for n, verdict in gone.items())
    notes = (*one.notes, *said)
    if one.needs_a_person or all(n in dropped for n in gone):
        return replace(one, notes=notes)
    if all(v in (Verdict.MERGED, Verdict.EMPTY) for v in gone.values()):
        return replace(one, verdict=Verdict.DEPENDS, notes=notes, needs_a_person=True)
    return replace(one, notes=notes)


def _with_missed(one: Judged, missed: Sequence[str], accepted: Set[str]) -> Judged:
    """A person dropped what this patch requires, and the new release does not do it instead."""
    if not missed or one.verdict in (Verdict.MERGED, Verdict.EMPTY):
        return one
    notes = (*one.notes, f"it requires {', '.join(missed)}: dropped, and upstream does not have it")
    if one.needs_a_person or one.number in accepted:
        return replace(one, notes=notes)
    return replace(one, verdict=Verdict.DEPENDS, notes=notes, needs_a_person=True)


def _keep_what_is_required(
    judged: Sequence[Judged], mails: Mapping[str, PatchMail], dropped: Set[str]
) -> list[Judged]:
    """A patch that something kept requires is not dropped without a person's word."""
    kept = [j for j in judged if j.verdict not in (Verdict.MERGED, Verdict.EMPTY)]
    found = []
    for one in judged:
        users = [k.number for k in kept if one.number in mails[k.number].requires]
        if one.verdict is Verdict.MERGED and users and one.number not in dropped:
            note = f"required by {', '.join(users)}: `--drop {one.number}` takes it out of there"
            one = replace(one, notes=(*one.notes, note), needs_a_person=True)
        found.append(one)
    return found
