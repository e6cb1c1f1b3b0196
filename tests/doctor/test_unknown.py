"""Unknown is unknown: no check passes on a fact that it read and that nobody knew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from rig.box.facts import Box
from rig.doctor.finding import Check
from rig.doctor.table import CHECKS
from tests.doctor.kit import box
from tests.doctor.test_checks import CASES

# Read and allowed to be unknown in a pass, and why. Everything else is not.
ALLOWED = {
    ("shm", "cards"),  # judged for the largest rig when nobody knows how many cards there are
    ("rig-file", "pairs.*.nvlinks"),  # counted only where the level says that there are any
}


def allowed(check: Check, path: str) -> bool:
    """Whether a check may pass although this fact is not known."""
    return (check.name, re.sub(r"\.\d+", ".*", path)) in ALLOWED


class Watched:
    """A box that remembers which of its facts were read, and which of those were not known."""

    def __init__(self, model: BaseModel, path: str, unknown: set[str], read: set[str]) -> None:
        self._model, self._path = model, path
        self._unknown, self._read = unknown, read

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        value = getattr(self._model, name)
        self._read.add(path)
        if value is None:
            self._unknown.add(path)
        return self._wrap(value, path)

    def _wrap(self, value: Any, path: str) -> Any:
        if isinstance(value, BaseModel):
            return Watched(value, path, self._unknown, self._read)
        if isinstance(value, tuple):
            return tuple(self._wrap(one, f"{path}.{i}") for i, one in enumerate(value))
        return value


def watched(seen: Box) -> tuple[Box, set[str], set[str]]:
    """The box to judge, the paths read of it, and those of them that were None."""
    unknown: set[str] = set()
    read: set[str] = set()
    return cast(Box, Watched(seen, "", unknown, read)), read, unknown


def without(seen: Box, path: str) -> Box:
    """The box with one fact not known; unchanged where the fact must always be there."""
    told = seen.model_dump()
    *way, last = path.split(".")
    there: Any = told
    for word in way:
        there = there[int(word)] if isinstance(there, list | tuple) else there[word]
    if not isinstance(there, dict):
        return seen
    there[last] = None
    try:
        return Box.model_validate(told)
    except ValueError:
        return seen


def test_a_fact_is_found_by_its_path() -> None:
    assert without(box(), "host.iommu").host.iommu is None
    assert (without(box(), "cards.1.link.width_now").cards or ())[1].link.width_now is None
    assert without(box(), "cards.1.index") == box()


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.name)
def test_a_pass_without_a_fact_that_it_read_is_no_pass(check: Check) -> None:
    """Take each fact that a pass rested on away, one at a time."""
    passing = [case for case in CASES if case.check == check.name and case.state == "pass"]
    assert passing
    taken = 0
    for case in passing:
        seen, read, _ = watched(case.box)
        assert check.run(seen, case.rig, case.context).state == "pass"
        for path in sorted(read):
            less = without(case.box, path)
            if less == case.box or allowed(check, path):
                continue
            taken += 1
            found = check.run(less, case.rig, case.context)
            assert found.state != "pass", (path, found)
    # Two checks rest on the context alone.
    assert taken or check.name in ("engine-ray", "ports")


def _all_paths() -> list[str]:
    """Every fact that any check reads of any case."""
    paths: set[str] = set()
    for case in CASES:
        for check in CHECKS:
            seen, read, _ = watched(case.box)
            check.run(seen, case.rig, case.context)
            paths |= read
    return sorted(paths)


_PATHS = _all_paths()


@given(
    case=st.sampled_from(CASES),
    gone=st.lists(st.sampled_from(_PATHS), max_size=8, unique=True),
)
@settings(max_examples=300, deadline=None)
def test_no_pass_rests_on_the_unknown(case: Any, gone: list[str]) -> None:
    """Any box, any facts missing: no check that read an unknown fact of it passes."""
    less: Box = case.box
    for path in gone:
        try:
            less = without(less, path)
        except (KeyError, IndexError, TypeError):
            continue  # what lies above it is gone already
    for check in CHECKS:
        seen, _, unknown = watched(less)
        found = check.run(seen, case.rig, case.context)
        if found.state == "pass":
            assert not {path for path in unknown if not allowed(check, path)}, found


def test_the_watch_sees_what_is_read() -> None:
    """The proof above rests on it."""

    def facts() -> Iterator[str]:
        seen, read, unknown = watched(without(box(), "host.iommu"))
        assert seen.host.iommu is None and [c.name for c in seen.cards or ()]
        yield from read
        yield from (f"!{path}" for path in unknown)

    assert {"host.iommu", "!host.iommu", "cards.1.name"} <= set(facts())
