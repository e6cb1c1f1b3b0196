"""A checkout whose series stands on one constructed release, and the next one in the cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from rig.pins import find_pin, read_pin
from rig.rebase.prepare import ground_of_pins
from rig.rebase.report import Report
from rig.rebase.survey import Decisions, survey
from rig.series.scratch import scratch_folder
from tests.series.releases import Entry, Tree, message, pin_table, sdist_bytes
from tests.series.workshop import Workshop, write_entry

from .corpus import BASE, UPSTREAM, Case

Make = Callable[[Case], Workshop]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Make the checkout of a case: the series is refreshed, the new release can be pinned."""

    def make(case: Case) -> Workshop:
        return checkout_of(case, tmp_path / "w")

    return make


def checkout_of(case: Case, folder: Path) -> Workshop:
    """A checkout with a case's series on its base; the new release lies in cache and new-pins."""
    workshop = Workshop(folder, {BASE: case.base})
    workshop.start()
    files = dict(case.base)
    for patch in case.patches:
        changed = patch.change(files)
        write_tree(workshop.tree(), files, changed)
        workshop.commit(message(patch.number, f"Patch {patch.number}", **dict(patch.trailers)))
        files = changed
    workshop.refresh()
    offer(workshop, case.new_release())
    return workshop


def offer(workshop: Workshop, files: Tree, version: str = UPSTREAM) -> None:
    """Let a release be had as if the index had told of it."""
    packed = sdist_bytes(version, files)
    digest = hashlib.sha256(packed).hexdigest()
    place = workshop.layout.downloads / digest / f"vllm-{version}.tar.gz"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(packed)
    pins = workshop.layout.build / "new-pins" / "patches" / "pins"
    pins.mkdir(parents=True, exist_ok=True)
    (pins / f"{version}.toml").write_text(tomli_w.dumps(pin_table(version, "primary", digest)))


def write_tree(folder: Path, old: Tree, new: Tree) -> None:
    """Change a work tree from one set of files to another."""
    for path in old.keys() - new.keys():
        write_entry(folder / path, None)
    for path, entry in new.items():
        if old.get(path) != entry:
            write_entry(folder / path, entry)


def read_tree(folder: Path) -> Tree:
    """The files of a work tree."""
    files: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            files[name] = Entry(os.fsencode(path.readlink()), "120000")
        else:
            executable = path.stat().st_mode & 0o111
            files[name] = Entry(path.read_bytes(), "100755" if executable else "100644")
    return files


def look(workshop: Workshop, decisions: Decisions | None = None) -> tuple[Report, Tree]:
    """The verdicts on the new release, and the tree that the rebase gave."""
    layout = workshop.layout
    pins = layout.build / "new-pins" / "patches" / "pins"
    new = read_pin(pins / f"{UPSTREAM}.toml")
    with scratch_folder(layout, "look") as scratch:
        ground = ground_of_pins(layout, find_pin(layout, BASE), new, scratch / "tree", None)
        _, report = survey(ground, f"vLLM {BASE}", decisions or Decisions({}, {}))
        return report, read_tree(ground.git.folder)
