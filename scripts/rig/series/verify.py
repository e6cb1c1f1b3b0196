"""`rig verify`: what the series claims, proven again from nothing on every pin.

On the primary pin an export gives the same bytes; on every pin the lock's blobs and trees come
out, and so they do for `git am`, `git apply` and quilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, Role, read_pins
from rig.series.applied import prove, read_back
from rig.series.export import export_commits, verbatim_patch_id
from rig.series.listing import (
    SeriesPatch,
    patches_for,
    read_mails,
    read_series,
    series_digest,
    stray_files,
)
from rig.series.lock import Lock, read_lock
from rig.series.mail import PatchMail, read_mail
from rig.series.mailbox_apply import apply_mails
from rig.series.pristine import make_pristine
from rig.series.scratch import scratch_folder
from rig.series.witnesses import find_quilt, tree_by_am, tree_by_apply, tree_by_quilt


def verify(layout: Layout, versions: list[str] | None = None, *, require_quilt: bool) -> list[str]:
    """Prove the series; returns a line for each thing that was proven, or was not and why.

    Args:
        layout: the checkout.
        versions: only these pins; all when None.
        require_quilt: a machine without quilt is an error, not a printed reason.

    Raises:
        RigError: the first thing that does not hold.
    """
    said = list(_verify_folder(layout))
    quilt = find_quilt()
    if quilt is None and require_quilt:
        raise RigError(
            "quilt is not installed, so it cannot witness the series",
            next_step="install the package `quilt`, or run without --require-quilt",
        )
    for pin in read_pins(layout):
        if versions and pin.version not in versions:
            continue
        with scratch_folder(layout, "verify") as scratch:
            for line in _verify_pin(layout, pin, scratch, quilt):
                console.print(f"vLLM {pin.version}: {line}")
                said.append(f"vLLM {pin.version}: {line}")
    return said


def _verify_folder(layout: Layout) -> Iterator[str]:
    """The series file and the folder agree; every text serves somebody."""
    strays = stray_files(layout)
    if strays:
        raise RigError(
            "files that neither the series nor a pin knows",
            where=", ".join(layout.shown(p) for p in strays),
            next_step="add them to patches/series, or remove them",
        )
    pins = read_pins(layout)
    used = {p.path for pin in pins for p in patches_for(layout, pin)}
    for name in read_series(layout):
        for folder in (layout.patches, *(layout.patches / p.version for p in pins)):
            path = folder / name
            if path.is_file() and path not in used:
                raise RigError(
                    "this text serves no pin",
                    where=layout.shown(path),
                    next_step="remove it, or the [skip] entry that hides it",
                )
    yield f"patches/series and the folder agree: {len(read_series(layout))} patches"


def _verify_pin(layout: Layout, pin: Pin, scratch: Path, quilt: str | None) -> Iterator[str]:
    lock = read_lock(layout, pin.version)
    read = read_mails(layout, pin)
    mails = [m for _, m in read]
    where = layout.shown(layout.lock(pin.version))
    git = make_pristine(layout, pin, scratch / f"vllm-{pin.version}", lock.pristine)
    apply_mails(git, mails, f"vLLM {pin.version}")
    found = read_back(git, pin.version, series_digest(layout, pin), mails)
    prove(git, found, lock, mails, where)
    _require_effect(found)
    _require_tests(git, mails)
    yield f"applied, {len(mails)} patches: every blob and tree equals the lock's ({where})"
    yield _verify_texts(layout, pin, read, git)
    yield from _verify_witnesses(git, mails, lock, quilt)


def _require_effect(found: Lock) -> None:
    for patch in found.patch:
        if not patch.file:
            raise RigError(f"{patch.name} changes nothing", next_step="remove it from the series")


def _require_tests(git: Git, mails: list[PatchMail]) -> None:
    """Every file that a `Tests:` trailer names is in the tree."""
    paths = set(git.null_separated("ls-tree", "-r", "-z", "--name-only", "HEAD"))
    for mail in mails:
        for test in mail.tests:
            if test.split("::")[0] not in paths:
                raise RigError(
                    f"{mail.name} names a test that is not there: {test}",
                    next_step="correct the Tests: trailer and `make refresh`",
                )


def _verify_texts(
    layout: Layout, pin: Pin, read: list[tuple[SeriesPatch, PatchMail]], git: Git
) -> str:
    """An export gives the same bytes where they come from this pin, else the same patch id."""
    same_bytes = 0
    for (patch, mail), exported in zip(read, export_commits(git.folder), strict=True):
        if pin.role is Role.PRIMARY or patch.is_override:
            if exported.mail.raw != mail.raw:
                raise RigError(
                    "an export gives other bytes than the file holds",
                    where=layout.shown(patch.path),
                    detail=_first_difference(mail.raw, exported.mail.raw),
                    next_step=f"`make refresh VLLM={pin.version}`, and read what it changes",
                )
            same_bytes += 1
        elif verbatim_patch_id(mail.raw, git) != verbatim_patch_id(exported.mail.raw, git):
            raise RigError(
                f"the common text is not the change that it makes on vLLM {pin.version}",
                where=layout.shown(patch.path),
                next_step=f"`make refresh VLLM={pin.version}` writes a text of its own",
            )
        if patch.is_override:
            _require_needed(layout, pin, patch, mail, git)
    return (
        f"exported again: {same_bytes} texts byte for byte, "
        f"{len(read) - same_bytes} by `git patch-id --verbatim`"
    )


def _require_needed(
    layout: Layout, pin: Pin, patch: SeriesPatch, mail: PatchMail, git: Git
) -> None:
    """An override must differ from the common text in more than index lines and numbers."""
    common = layout.patches / patch.name
    if not common.is_file():
        return
    shared = read_mail(common, git)
    same = verbatim_patch_id(shared.raw, git) == verbatim_patch_id(mail.raw, git)
    if same and shared.message == mail.message and not _lands_elsewhere(git, shared, mail):
        raise RigError(
            f"the common text would serve vLLM {pin.version} as well",
            where=layout.shown(patch.path),
            next_step=f"`make refresh VLLM={pin.version}` removes the override",
        )


def _lands_elsewhere(git: Git, shared: PatchMail, mail: PatchMail) -> bool:
    """Whether the common text would be drawn to a twin of its target on this pin."""
    commit = git.line("log", "-1", "--format=%H", f"--grep=^Rig-Number: {mail.number}$")
    git.run("checkout", "--quiet", "--detach", f"{commit}^")
    try:
        done = git.run("apply", "--index", "-", stdin=shared.raw, check=False)
        return done.code != 0 or git.line("write-tree") != git.tree_id(commit)
    finally:
        git.run("reset", "--quiet", "--hard")
        git.run("checkout", "--quiet", "rig")


def _verify_witnesses(
    git: Git, mails: list[PatchMail], lock: Lock, quilt: str | None
) -> Iterator[str]:
    trees = {"git am": tree_by_am(git, mails), "git apply": tree_by_apply(git, mails)}
    if quilt:
        trees["quilt push -a --fuzz=0"] = tree_by_quilt(git, mails, quilt)
    for witness, tree in trees.items():
        if tree != lock.final:
            raise RigError(
                f"{witness} gives tree {tree}, the lock says {lock.final}",
                where=f"vLLM {lock.version}",
                next_step="one of the patches means different things to different tools: look "
                "for a diff in a message, or for a mode or a rename",
            )
    yield f"the same tree {lock.final[:12]} by {', '.join(trees)}"
    if quilt is None:
        yield "NOT proven by quilt: it is not installed (package `quilt`)"


def _first_difference(old: bytes, new: bytes) -> str:
    pairs = zip(old.splitlines(), new.splitlines(), strict=False)
    for at, (a, b) in enumerate(pairs, 1):
        if a != b:
            return f"line {at}:\n  file:   {a.decode('utf-8', 'replace')}\n  export: " + b.decode(
                "utf-8", "replace"
            )
    return f"the file has {len(old)} bytes, the export {len(new)}"
