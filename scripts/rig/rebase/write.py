"""The files of a finished rebase: pins, texts, locks. Worked out and proven, not yet written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w
from packaging.version import Version

from rig.console import console
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, Role, read_pins
from rig.rebase.left_out import reason_with
from rig.series.applied import commits_of_series, touched_files
from rig.series.export import Exported, export_commits, verbatim_patch_id
from rig.series.listing import read_mails, read_series
from rig.series.lock import lock_text, read_lock
from rig.series.mail import PatchMail, read_mail
from rig.series.mailbox_apply import apply_mails
from rig.series.pristine import make_pristine
from rig.series.series_text import series_text
from rig.series.texts import Chosen, Wanted, choose_texts
from rig.series.verify import verify

Files = dict[Path, bytes | None]


@dataclass(frozen=True)
class Outcome:
    """What is to be written, in the groups in which it is committed.

    Args:
        pin: the pin files.
        drops: patch number -> the files of its drop.
        resolutions: the texts that persons made.
        rest: all other texts, the series file, the locks.
    """

    pin: Files
    drops: dict[str, Files]
    resolutions: Files
    rest: Files

    def all(self) -> Files:
        """Every file."""
        files = self.pin | self.resolutions | self.rest
        for dropped in self.drops.values():
            files |= dropped
        return files


def work_out(
    layout: Layout,
    old: Pin,
    new: Pin,
    git: Git,
    dropped: Mapping[str, str],
    resolved: Mapping[str, PatchMail],
    needed_again: Mapping[str, str],
    scratch: Path,
) -> Outcome:
    """The files of a finished rebase.

    A newer release becomes the primary pin, and its texts the common ones; each older pin keeps
    exactly the tree that its lock gives, by texts of its own where the common one differs now.
    An older release becomes a secondary pin, with texts of its own where the common one does not
    serve.

    Args:
        layout: the checkout.
        old: the pin that was carried.
        new: the pin of the new release, as it came from the index.
        git: the repository whose HEAD is the result.
        dropped: patch number -> what upstream change made it unnecessary, or why a person said so.
        resolved: patch number -> the text of a person.
        needed_again: patch number -> what the new release lacks although the old pin skips it.
        scratch: an empty folder.

    Raises:
        RigError: a text does not give back the tree that it came from.
    """
    forward = old.role is Role.PRIMARY and Version(new.version) > Version(old.version)
    tip = without_requirements(git, set(dropped))
    exported = export_commits(git.folder, tip)
    names = {n[:4]: n for n in read_series(layout)}
    skip = _skips_of(layout, old, names, forward) | dict(new.skip) | dict(dropped)
    skip |= {n: reason_with(skip[n], new.version, found) for n, found in needed_again.items()}
    new = new.model_copy(update={"role": Role.PRIMARY if forward else Role.SECONDARY, "skip": skip})
    pins: Files = {layout.pins / f"{new.version}.toml": pin_text(new)}
    if forward:
        path = layout.pins / f"{old.version}.toml"
        pins[path] = _as_secondary(path.read_text("utf-8")).encode()
        common = {e.name: e.mail for e in exported}
    else:
        # Not FROM's texts: it may have some of its own, which serve no other pin.
        paths = [layout.patches / n for n in names.values()]
        common = {p.name: read_mail(p, git) for p in paths if p.is_file()}
    target = make_pristine(layout, new, scratch / f"vllm-{new.version}", None)
    target.run("fetch", "--quiet", "--no-tags", git.folder, tip)
    wanted = [
        Wanted(e.mail, touched_files(git, f"{e.commit}^", e.commit), e.mail.number in resolved)
        for e in _named(exported, names, forward)
    ]
    chosen = choose_texts(target, new, wanted, common)
    texts: Files = {}
    locks: Files = {layout.lock(new.version): lock_text(chosen.lock).encode()}
    texts |= _overrides(layout, new, chosen)
    if forward:
        texts |= {layout.patches / n: None for n in names.values() if n not in common}
        texts |= {layout.patches / n: mail.raw for n, mail in common.items()}
        for pin in (p for p in read_pins(layout) if p.version != new.version):
            kept = keep_tree(layout, pin, common, scratch)
            texts |= _overrides(layout, pin, kept)
            locks[layout.lock(pin.version)] = lock_text(kept.lock).encode()
        series = sorted({*common, *(n for n in names.values())}, key=lambda n: n[:4])
        locks[layout.series] = series_text(layout.series.read_text("utf-8"), series).encode()
    return _in_groups(layout, pins, texts, locks, dropped, resolved)


def keep_tree(layout: Layout, pin: Pin, common: Mapping[str, PatchMail], scratch: Path) -> Chosen:
    """The texts with which a pin keeps exactly what its lock gives, under new common texts."""
    lock = read_lock(layout, pin.version)
    read = read_mails(layout, pin)
    git = make_pristine(layout, pin, scratch / f"vllm-{pin.version}", lock.pristine)
    apply_mails(git, [mail for _, mail in read], f"vLLM {pin.version}")
    wanted = []
    # A text of its own is exported from its own commit, as a refresh would.
    own = export_commits(git.folder)
    for (patch, _), exported, locked in zip(read, own, lock.patch, strict=True):
        by_hand = (
            patch.number in lock.by_hand
            or not patch.is_override
            # A refresh made it of a common text that is another one now: it could not again.
            or _says_other(layout, common.get(patch.name), patch.name, git)
        )
        wanted.append(Wanted(replace(exported.mail, name=patch.name), locked.file, by_hand))
    return choose_texts(git, pin, wanted, common)


def _says_other(layout: Layout, new: PatchMail | None, name: str, git: Git) -> bool:
    old = layout.patches / name
    if new is None or not old.is_file():
        return True
    return verbatim_patch_id(new.raw, git) != verbatim_patch_id(old.read_bytes(), git)


def _skips_of(layout: Layout, old: Pin, names: Mapping[str, str], forward: bool) -> dict[str, str]:
    """What the old pin skips was not carried, so the new one skips it, too."""
    skip = dict(old.skip)
    for number, why in old.skip.items():
        if not forward and not (layout.patches / names[number]).is_file():
            # A patch that only older pins need: whether this one does, nobody has looked.
            skip[number] = f"not carried: vLLM {old.version}, where it came from, skips it: {why}"
    return skip


def prove(layout: Layout, files: Files, scratch: Path) -> None:
    """Verify a copy of patches/ as it will be, so that nothing unproven is written.

    Raises:
        RigError: something does not hold.
    """
    copy = replace(layout, root=scratch / "checkout")
    killed = shutil.ignore_patterns(".*.new")
    shutil.copytree(layout.patches, copy.patches, symlinks=True, ignore=killed)
    for path, content in files.items():
        place = copy.root / path.relative_to(layout.root)
        if content is None:
            place.unlink(missing_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    for line in verify(copy, None, require_quilt=False):
        console.print(line, markup=False)


def without_requirements(git: Git, dropped: set[str]) -> str:
    """The tip of HEAD's series in which no patch requires a dropped one."""
    tip = git.line("rev-parse", "refs/rig/pristine")
    for commit in commits_of_series(git):
        message = git.run("log", "-1", "--format=%B", commit).text
        message = re.sub(r"(?m)^Requires: *(.*)$", lambda said: _requires(said, dropped), message)
        fields = git.run("log", "-1", "--format=%an%x00%ae%x00%aD", commit).text
        author = dict(
            zip(
                ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"),
                fields.strip("\n").split("\0"),
                strict=True,
            )
        )
        author["GIT_COMMITTER_DATE"] = author["GIT_AUTHOR_DATE"]
        made = git.run(
            "commit-tree", f"{commit}^{{tree}}", "-p", tip, "-F", "-",
            stdin=message.rstrip("\n").encode("utf-8", "surrogateescape") + b"\n", env=author,
        )  # fmt: skip
        tip = made.text.strip()
    return tip


def _requires(said: re.Match[str], dropped: set[str]) -> str:
    listed = [n.strip() for n in said[1].split(",")]
    kept = [n for n in listed if n not in dropped]
    return said[0] if kept == listed else f"Requires: {', '.join(kept) or 'none'}"


def pin_text(pin: Pin) -> bytes:
    """A pin file's bytes."""
    table = pin.model_dump(mode="json", exclude_none=True)
    if not table.get("skip"):
        table.pop("skip", None)
    return tomli_w.dumps(table).encode()


def _as_secondary(text: str) -> str:
    return re.sub(r'(?m)^role = "primary"$', 'role = "secondary"', text, count=1)


def _named(exported: Sequence[Exported], names: Mapping[str, str], forward: bool) -> list[Exported]:
    """An older pin's text goes by the name that the series has for it."""
    if forward:
        return list(exported)
    return [
        replace(e, mail=replace(e.mail, name=names.get(e.mail.number, e.name))) for e in exported
    ]


def _overrides(layout: Layout, pin: Pin, chosen: Chosen) -> Files:
    return {layout.patches / pin.version / n: text for n, text in chosen.overrides.items()}


def _in_groups(
    layout: Layout,
    pins: Files,
    texts: Files,
    locks: Files,
    dropped: Mapping[str, str],
    resolved: Mapping[str, PatchMail],
) -> Outcome:
    drops: dict[str, Files] = {}
    hand: Files = {}
    rest = dict(locks)
    for path, content in texts.items():
        if content is None and not path.exists():
            continue
        number = path.name[:4]
        if number in dropped:
            drops.setdefault(number, {})[path] = content
        elif number in resolved:
            hand[path] = content
        else:
            rest[path] = content
    return Outcome(pins, drops, hand, rest)
