"""All verdicts in one run: rebase, probe, judge. Nothing outside the repository is changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from rig.git import Git
from rig.probes.grammar import probes_of
from rig.probes.look import look
from rig.probes.sources import Commit
from rig.rebase.left_out import cannot_be_looked_for, needed_again
from rig.rebase.merged import upstream_has
from rig.rebase.passage import FROM_REF, End, Passage, carry_over, numbers_of
from rig.rebase.prepare import Ground
from rig.rebase.report import Report
from rig.rebase.requirements import changed_requirements
from rig.rebase.verdict import Bench, Judged, judge
from rig.rebase.whereabouts import renames
from rig.series.export import export_repository
from rig.series.mail import PatchMail
from rig.series.pristine import PRISTINE_REF


@dataclass(frozen=True)
class Decisions:
    """What persons decided.

    Args:
        resolutions: patch number -> the text that answers its conflict.
        leave_out: patch number -> why it is not carried.
        accept: patches whose failed probes were looked at.
        drop: patches that may be dropped although something requires them.
        edit: patches that a person edits although git can merge them.
    """

    resolutions: Mapping[str, PatchMail]
    leave_out: Mapping[str, str]
    accept: Set[str] = frozenset()
    drop: Set[str] = frozenset()
    edit: Set[str] = frozenset()


def survey(ground: Ground, old: str, decisions: Decisions) -> tuple[list[Passage], Report]:
    """Carry the series over and judge each patch.

    Args:
        ground: both releases and the series; HEAD is the result afterwards.
        old: the name of the old release.
        decisions: what persons decided so far.
    """
    started = time.monotonic()
    git, onto = ground.git, ground.onto
    passages = carry_over(
        git,
        onto,
        ground.commits,
        decisions.resolutions,
        leave_out=decisions.leave_out,
        edit=decisions.edit,
    )
    rebased = time.monotonic() - started
    # A text that no conflict asked for is not what was carried.
    used = {p.number for p in passages if p.end is End.RESOLVED}
    mails = {m.number: m for m in ground.mails}
    mails |= {n: mail for n, mail in decisions.resolutions.items() if n in used}
    carried = [mails[p.number] for p in passages]
    probes = {m.name: probes_of(m) for m in carried}
    sightings = look(probes, _tree(git, PRISTINE_REF, ground.name), _tree(git, FROM_REF, old))
    with export_repository(git.folder) as exporter:
        missed = _missed(ground, onto, decisions.drop)
        elsewhere = renames(git, FROM_REF, onto)
        bench = Bench(git, exporter, onto, decisions.accept, decisions.drop, missed, elsewhere)
        judged = judge(bench, passages, mails, sightings)
    # What the new pin leaves out itself, or a person drops now, is decided.
    left_out = [one for one in ground.left_out if one.number not in decisions.leave_out]
    skipped = {n: why for n, why in decisions.leave_out.items() if n in mails}
    report = Report(
        old=old,
        new=ground.name,
        judged=tuple(judged),
        skipped=skipped | cannot_be_looked_for(git, left_out, (old, FROM_REF)),
        needed_again=tuple(
            needed_again(git, left_out, (old, FROM_REF), (ground.name, onto), elsewhere)
        ),
        requirements=tuple(changed_requirements(git, FROM_REF, PRISTINE_REF)),
        tests=_tests(judged, mails),
        rebase_seconds=round(rebased, 2),
        seconds=round(time.monotonic() - started, 2),
    )
    return passages, report


def _missed(ground: Ground, onto: str, dropped: Set[str]) -> set[str]:
    """The patches that a person drops although the new release does not have their lines."""
    numbers = numbers_of(ground.git, ground.commits)
    return {
        number
        for commit, number in numbers.items()
        if number in dropped and not upstream_has(ground.git, commit, onto).agrees
    }


def _tree(git: Git, revision: str, name: str) -> Commit:
    return Commit(name, git, revision)


def _tests(judged: Sequence[Judged], mails: Mapping[str, PatchMail]) -> tuple[str, ...]:
    """The tests that patches name; those of patches whose text changed come first."""
    first = [t for j in judged if not j.same_text for t in mails[j.number].tests]
    rest = [t for j in judged if j.same_text for t in mails[j.number].tests]
    return tuple(dict.fromkeys([*first, *rest]))
