"""Probes of the series on a pin or on any tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, find_pin, primary_pin
from rig.probes.grammar import probes_of
from rig.probes.look import Sighting, look
from rig.probes.sources import Commit, Folder, Source
from rig.series.listing import read_mails
from rig.series.lock import read_lock
from rig.series.pristine import PRISTINE_REF, make_pristine
from rig.series.scratch import scratch_folder


def look_in(layout: Layout, version: str | None, tree: Path | None) -> list[Sighting]:
    """Look up the probes in a pin's untouched release, or in a tree.

    A tree is compared with the primary pin, whose texts are tried on it. In a pin's own release
    the patches that it skips are not looked up.

    Raises:
        RigError: both are given, or the tree holds no vllm/.
    """
    if tree is not None and version is not None:
        raise RigError("--pin and --tree are two trees", next_step="give one of them")
    primary = primary_pin(layout)
    pin = find_pin(layout, version)
    probes = {mail.name: probes_of(mail) for _, mail in read_mails(layout, pin)}
    with _release(layout, primary) as made_for:
        if tree is not None:
            if not (tree / "vllm" / "__init__.py").is_file():
                raise RigError(
                    "this is no vLLM tree: it has no vllm/__init__.py",
                    where=tree,
                    next_step="name the folder that holds vllm/",
                )
            return look(probes, Folder(str(tree), tree.resolve()), made_for)
        if pin.version == primary.version:
            return look(probes, made_for)
        with _release(layout, pin) as source:
            return look(probes, source, made_for)


@contextmanager
def _release(layout: Layout, pin: Pin) -> Iterator[Source]:
    """A pin's untouched release: from its applied tree if there is one, else unpacked anew."""
    name = f"vLLM {pin.version}"
    expected = read_lock(layout, pin.version).pristine
    applied = layout.tree(pin.version)
    if applied.is_dir():
        found = Git(applied).run("rev-parse", f"{PRISTINE_REF}^{{tree}}", check=False)
        if found.text.strip() == expected:
            yield Commit(name, Git(applied), PRISTINE_REF)
            return
    with scratch_folder(layout, f"probes-{pin.version}") as scratch:
        git = make_pristine(layout, pin, scratch / "tree", expected)
        yield Commit(name, git, PRISTINE_REF)
