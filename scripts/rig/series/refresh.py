"""`rig refresh`: commits in build/ back to patches/, and the locks renewed.

The bytes of `patches/*.patch` come from the primary pin only: index lines and line numbers
depend on the release. Another pin gets an override only where the common text cannot serve it.
Everything is worked out and proven in scratch repositories first; then files are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, Role, find_pin, primary_pin, read_pins
from rig.series.applied import touched_files
from rig.series.apply import Stamp, locked, start_unproven, uncommitted_in, write_stamp
from rig.series.carry import Step, carry
from rig.series.export import Exported, export_commits, names_of_commits
from rig.series.listing import read_series
from rig.series.lock import lock_text, read_lock, replace_file
from rig.series.mail import PatchMail, read_mail
from rig.series.order import in_order
from rig.series.pristine import make_pristine
from rig.series.scratch import scratch_folder
from rig.series.series_text import series_text
from rig.series.texts import Chosen, Wanted, choose_texts

# What git leaves in .git/ while a rebase, merge, cherry-pick or bisection is under way.
_UNFINISHED = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "BISECT_LOG")


@dataclass
class Changes:
    """What a refresh will write: path -> bytes, or None for a file that goes away."""

    files: dict[Path, bytes | None] = field(default_factory=dict)

    def add(self, layout: Layout, pin: Pin, chosen: Chosen) -> None:
        """Take the lock and the overrides of one pin."""
        for name, text in chosen.overrides.items():
            self.files[layout.patches / pin.version / name] = text
        self.files[layout.lock(pin.version)] = lock_text(chosen.lock).encode()

    def write(self, layout: Layout) -> list[str]:
        """Write what differs; returns a line for every file."""
        said = []
        for path, content in self.files.items():
            if content is None:
                if path.exists():
                    path.unlink()
                    said.append(f"removed  {layout.shown(path)}")
            elif replace_file(path, content):
                said.append(f"written  {layout.shown(path)}")
        for pin in read_pins(layout):
            folder = layout.patches / pin.version
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return said


def refresh(layout: Layout, version: str | None = None) -> list[str]:
    """Export one pin's tree and renew locks; returns a line for every file that changed.

    Args:
        layout: the checkout.
        version: the pin; the primary one renews the locks of all pins.

    Raises:
        RigError: the tree has uncommitted work, a commit breaks a rule, a pin conflicts, or an
            export does not give back the tree that it came from. Nothing is written then.
    """
    pin = find_pin(layout, version)
    tree = layout.tree(pin.version)
    with locked(layout, pin.version):
        if not tree.exists():
            console.print(f"no {layout.shown(tree)}: made from the texts as they are, unproven")
            start_unproven(layout, pin)
        _require_committed(tree)
        exported = export_commits(tree)
        # One refresh at a time, of whichever pin: all write in patches/.
        with scratch_folder(layout, "refresh") as scratch:
            for leftover in layout.patches.rglob(".*.new"):
                leftover.unlink()
            exported = in_order(layout, pin, exported, scratch)
            if pin.role is Role.PRIMARY:
                changes, chosen = _from_primary(layout, pin, exported, scratch)
            else:
                changes, chosen = _from_secondary(layout, pin, exported, scratch)
            said = changes.write(layout)
            _restamp(pin, tree, chosen)
    return said


def _require_committed(tree: Path) -> None:
    unfinished = [name for name in _UNFINISHED if (tree / ".git" / name).exists()]
    if unfinished:
        raise RigError(
            f"a git command is not finished there ({unfinished[0]}): a rebase, say",
            where=tree,
            next_step="`git status` there tells how to finish or to abort it: an export of what "
            "is checked out now would drop the patches that are not yet back",
        )
    loose = uncommitted_in(tree)
    if loose:
        raise RigError(
            "the tree holds work that is not committed, so the export would miss it",
            where="\n         ".join(loose[:12]),
            next_step="commit it (`git add -f` for files marked !!, which vLLM's .gitignore "
            "hides) or remove it",
        )


def _from_primary(
    layout: Layout, pin: Pin, exported: Sequence[Exported], scratch: Path
) -> tuple[Changes, Chosen]:
    skipped = [e.name for e in exported if e.mail.number in pin.skip]
    if skipped:
        raise RigError(
            f"the pin skips {skipped[0]}, but its tree carries it",
            where=f"{layout.shown(layout.pins)}/{pin.version}.toml",
            next_step="drop the commit or the [skip] entry",
        )
    others = [p for p in read_pins(layout) if p.version != pin.version]
    common = {e.name: e.mail for e in exported}
    # Patches that only older pins need have no common text: their names stay in the series.
    older = [n for n in read_series(layout) if n[:4] in pin.skip]
    changes = Changes()
    for name in read_series(layout):
        if name not in common and name not in older:
            for folder in (layout.patches, *(layout.patches / p.version for p in others)):
                changes.files[folder / name] = None
    changes.files |= {layout.patches / n: mail.raw for n, mail in common.items()}
    names = sorted([*common, *older], key=lambda n: n[:4])
    text = series_text(layout.series.read_text("utf-8"), names)

    wanted = _wanted(Git(layout.tree(pin.version)), exported, [e.name for e in exported])
    git = make_pristine(layout, pin, scratch / f"vllm-{pin.version}", None)
    chosen = choose_texts(git, pin, wanted, common)
    own = [n for n, raw in chosen.overrides.items() if raw is not None]
    if own:
        raise RigError(
            f"{own[0]} does not give back its own commit when it is applied",
            where=f"vLLM {pin.version}",
            next_step="give the hunk more context: change a line that only its target has near",
        )
    changes.files[layout.lock(pin.version)] = lock_text(chosen.lock).encode()
    console.print(
        f"vLLM {pin.version}: {len(exported)} patches exported and applied again, "
        f"tree {chosen.lock.final[:12]}"
    )
    for other in others:
        changes.add(layout, other, _carried(layout, other, exported, older, scratch))
    changes.files[layout.series] = text.encode()
    return changes, chosen


def _carried(
    layout: Layout, pin: Pin, exported: Sequence[Exported], older: Sequence[str], scratch: Path
) -> Chosen:
    """Carry the primary's commits to another pin and choose its texts."""
    target = make_pristine(layout, pin, scratch / f"vllm-{pin.version}", None)
    source = layout.tree(primary_pin(layout).version)
    own = {m.number: m for m in _made_by_hand(layout, pin, target)}
    ours = [e for e in exported if e.mail.number not in pin.skip]
    results = carry(target, source, [Step(e.commit, own.get(e.mail.number)) for e in ours])
    wanted = [
        replace(want, by_hand=want.mail.number in own)
        for want in _wanted(target, export_commits(target.folder), [e.name for e in ours])
    ]
    own_only = [n for n in older if n[:4] not in pin.skip]
    for name in own_only:
        mail = read_mail(layout.patches / pin.version / name, target)
        wanted.append(Wanted(mail, None, by_hand=True))
    wanted.sort(key=lambda w: w.mail.number)
    rebased = target.tree_id()
    chosen = choose_texts(target, pin, wanted, {e.name: e.mail for e in exported})
    if results and not own_only and chosen.lock.final != rebased:
        raise RigError(
            f"the texts give tree {chosen.lock.final}, the carried commits {rebased}",
            where=f"vLLM {pin.version}",
        )
    _say(pin, chosen)
    _say_where_to_look(layout, pin, exported, chosen)
    return chosen


def _made_by_hand(layout: Layout, pin: Pin, git: Git) -> list[PatchMail]:
    """The texts that a person made for a pin; without a lock, all that it has of its own."""
    folder = layout.patches / pin.version
    try:
        numbers: tuple[str, ...] | None = read_lock(layout, pin.version).by_hand
    except RigError:
        numbers = None
    paths = sorted(folder.glob("*.patch")) if folder.is_dir() else []
    return [read_mail(p, git) for p in paths if numbers is None or p.name[:4] in numbers]


def _say_where_to_look(
    layout: Layout, pin: Pin, exported: Sequence[Exported], chosen: Chosen
) -> None:
    """A text made by hand does not follow when the common one changes: say so."""
    for mail in (e.mail for e in exported):
        old = layout.patches / mail.name
        changed = not old.is_file() or old.read_bytes() != mail.raw
        if mail.number in chosen.lock.by_hand and changed:
            console.print(
                f"look: {mail.name} changed, and vLLM {pin.version} keeps its own text, made by "
                "hand: see whether it still says the same"
            )


def _from_secondary(
    layout: Layout, pin: Pin, exported: Sequence[Exported], scratch: Path
) -> tuple[Changes, Chosen]:
    """A secondary pin's own tree decides: what differs from the common text is an override."""
    names = {n[:4]: n for n in read_series(layout)}
    missing = sorted(set(names) - {e.mail.number for e in exported} - set(pin.skip))
    # A new patch that conflicts here is made here first, before the primary pin is refreshed.
    coming = {n: name for n, name in _names_in_primary_tree(layout).items() if n not in names}
    names |= coming
    extra = sorted({e.mail.number for e in exported} - (set(names) - set(pin.skip)))
    if missing or extra:
        raise RigError(
            f"patches missing in this tree: {', '.join(missing) or 'none'}; "
            f"not for this pin: {', '.join(extra) or 'none'}",
            where=layout.shown(layout.tree(pin.version)),
            next_step="a pin leaves a patch out by [skip] with a reason in its file; new patches "
            "are made in the primary pin's tree",
        )
    git = Git(layout.tree(pin.version))
    kept = _carried_texts(layout, pin)
    wanted = [
        replace(want, by_hand=kept.get(want.mail.name) != want.mail.raw)
        for want in _wanted(git, exported, [names[e.mail.number] for e in exported])
    ]
    common = {
        n: read_mail(layout.patches / n, git)
        for n in names.values()
        if (layout.patches / n).is_file()
    }
    scratch_git = make_pristine(layout, pin, scratch / f"vllm-{pin.version}", None)
    chosen = choose_texts(scratch_git, pin, wanted, common)
    _say(pin, chosen)
    for number in sorted(coming.keys() & {e.mail.number for e in exported}):
        console.print(f"next: `make refresh`, which brings {number} from the primary pin's tree")
    changes = Changes()
    changes.add(layout, pin, chosen)
    return changes, chosen


def _names_in_primary_tree(layout: Layout) -> dict[str, str]:
    """Number -> file name of the patches that the primary pin's tree holds as commits."""
    tree = layout.tree(primary_pin(layout).version)
    return names_of_commits(tree) if tree.exists() else {}


def _carried_texts(layout: Layout, pin: Pin) -> dict[str, bytes]:
    """File name -> text of a pin's own texts that a refresh wrote, not a person."""
    git = Git(layout.patches)
    own = {m.name: m.raw for m in _made_by_hand(layout, pin, git)}
    folder = layout.patches / pin.version
    paths = sorted(folder.glob("*.patch")) if folder.is_dir() else []
    return {p.name: p.read_bytes() for p in paths if p.name not in own}


def _say(pin: Pin, chosen: Chosen) -> None:
    own = [n for n, text in chosen.overrides.items() if text is not None]
    console.print(
        f"vLLM {pin.version}: {len(chosen.lock.patch)} patches, tree {chosen.lock.final[:12]}"
        + (f"; own texts for {', '.join(own)}" if own else "; the common texts serve")
    )


def _wanted(git: Git, exported: Sequence[Exported], names: Sequence[str]) -> list[Wanted]:
    return [
        Wanted(_named(e.mail, name), touched_files(git, f"{e.commit}^", e.commit))
        for e, name in zip(exported, names, strict=True)
    ]


def _named(mail: PatchMail, name: str) -> PatchMail:
    return replace(mail, name=name)


def _restamp(pin: Pin, tree: Path, chosen: Chosen) -> None:
    """Let the tree be the applied series: the same files, the commits that an apply makes."""
    work = Git(tree)
    work.run("fetch", "--quiet", "--no-tags", chosen.git.folder, "HEAD")
    head = chosen.git.line("rev-parse", "HEAD")
    work.run("update-ref", "-m", "rig refresh", "HEAD", head)
    write_stamp(tree, Stamp(pin.version, chosen.lock.series, head, chosen.lock.final))
