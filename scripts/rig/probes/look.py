"""Look up probes in a tree, and compare with the release that the patches are made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rig.probes.grammar import Once, Probe, Symbol
from rig.probes.sources import Source
from rig.probes.symbols import Definition, Modules


class State(StrEnum):
    """What a probe saw."""

    HOLDS = "holds"
    CHANGED = "changed"  # there, but not as in the release that the patch is made for
    GONE = "gone"  # no longer there, or no longer once


@dataclass(frozen=True)
class Sighting:
    """One probe of one patch.

    Args:
        patch: its file name.
        probe: as the patch writes it.
        state: what was seen.
        said: what differs and where it may have gone; "" when it holds.
        where: path:line in the tree, or "".
    """

    patch: str
    probe: str
    state: State
    said: str
    where: str


def look(
    probes: Mapping[str, Sequence[Probe]], tree: Source, made_for: Source | None = None
) -> list[Sighting]:
    """Look up each patch's probes.

    Args:
        probes: patch file name -> its probes.
        tree: where they are looked up.
        made_for: the release with whose signatures they are compared; None compares nothing.
    """
    here = Modules(tree)
    before = Modules(made_for) if made_for is not None else None
    seen = []
    for patch, wanted in probes.items():
        for probe in wanted:
            if isinstance(probe, Symbol):
                state, said, where = _symbol(probe, here, before)
            else:
                state, said, where = _once(probe, tree)
            seen.append(Sighting(patch, str(probe), state, said, where))
    return seen


def _symbol(probe: Symbol, here: Modules, before: Modules | None) -> tuple[State, str, str]:
    found = here.find(probe.module, probe.name)
    if found is None:
        return State.GONE, _where_it_went(probe, here.source), ""
    where = f"{found.path}:{found.line}"
    old = before.find(probe.module, probe.name) if before is not None else None
    said = _difference(old, found) if old is not None else ""
    return (State.CHANGED if said else State.HOLDS), said, where


def _difference(old: Definition, new: Definition) -> str:
    said = []
    if old.path != new.path:
        said.append(f"defined in {new.path}, was in {old.path}")
    if old.kind != new.kind:
        said.append(f"a {new.kind}, was a {old.kind}")
    elif old.signature != new.signature:
        said.append(f"({new.signature}), was ({old.signature})")
    return "; ".join(said)


def _where_it_went(probe: Symbol, tree: Source) -> str:
    path = probe.module.replace(".", "/")
    if tree.read(f"{path}.py") is None and tree.read(f"{path}/__init__.py") is None:
        said = f"there is no module {probe.module}"
    else:
        said = f"{probe.module} has no {probe.name}"
    last = probe.name.split(".")[0] if said.startswith("there") else probe.name.rsplit(".")[-1]
    others = _files({*tree.holding(f"class {last}"), *tree.holding(f"def {last}(")})
    return said + (f"; {last} is defined in {others}" if others else "")


def _once(probe: Once, tree: Source) -> tuple[State, str, str]:
    raw = tree.read(probe.path)
    if raw is None:
        others = _files(tree.holding(probe.text))
        said = "there is no such file"
        return State.GONE, said + (f"; the text is in {others}" if others else ""), ""
    text = raw.decode("utf-8", "replace")
    count = text.count(probe.text)
    if count == 1:
        line = text[: text.index(probe.text)].count("\n") + 1
        return State.HOLDS, "", f"{probe.path}:{line}"
    said = f"the text is there {count} times" if count else "the text is not there"
    if not count and (others := _files(tree.holding(probe.text))):
        said += f"; it is in {others}"
    return State.GONE, said, probe.path


def _files(paths: Iterable[str]) -> str:
    found = sorted(paths)
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
