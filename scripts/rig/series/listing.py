"""`patches/series`: which patches, in which order, and which text serves which pin."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, read_pins
from rig.series.mail import FILE_NAME, PatchMail, read_mail


@dataclass(frozen=True)
class SeriesPatch:
    """One patch as it serves one pin.

    Args:
        name: its file name, the same in an override.
        path: the text that serves this pin.
        is_override: the text lies in `patches/<version>/`.
    """

    name: str
    path: Path
    is_override: bool

    @property
    def number(self) -> str:
        return self.name[:4]


def read_series(layout: Layout) -> list[str]:
    """The patch file names in order.

    Raises:
        RigError: the file is missing, a line is no patch name, a name or number comes twice,
            or numbers do not ascend.
    """
    names: list[str] = []
    try:
        lines = layout.series.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RigError(
            f"cannot read the series: {error}",
            where=layout.shown(layout.series),
            next_step="restore it from git",
        ) from error
    for at, line in enumerate(lines, 1):
        name = line.split("#", 1)[0].strip()
        if not name:
            continue
        if not FILE_NAME.match(name):
            raise RigError(
                f"{name!r} is not a patch file name (NNNN-words.patch)",
                where=f"{layout.shown(layout.series)}:{at}",
                next_step="correct the line; `make refresh` writes it for new patches",
            )
        if names and name[:4] <= names[-1][:4]:
            raise RigError(
                f"{name} comes after {names[-1]}: numbers must ascend, each used once",
                where=f"{layout.shown(layout.series)}:{at}",
                next_step="renumber one of them",
            )
        names.append(name)
    return names


def patches_for(layout: Layout, pin: Pin) -> list[SeriesPatch]:
    """The texts that serve one pin, in order, without the patches that it skips.

    Raises:
        RigError: a patch has no text for this pin, or the pin skips what does not exist.
    """
    names = read_series(layout)
    numbers = {n[:4] for n in names}
    unknown = sorted(set(pin.skip) - numbers)
    if unknown:
        raise RigError(
            f"the pin skips patch {', '.join(unknown)}, which the series does not have",
            where=f"{layout.shown(layout.pins)}/{pin.version}.toml",
            next_step="remove it from [skip]",
        )
    chosen = []
    for name in names:
        if name[:4] in pin.skip:
            continue
        override = layout.patches / pin.version / name
        path = override if override.is_file() else layout.patches / name
        if not path.is_file():
            raise RigError(
                f"the series names {name}, but there is no such file",
                where=layout.shown(path),
                next_step="restore the file, remove the line, or let the pin skip it",
            )
        chosen.append(SeriesPatch(name, path, is_override=path == override))
    return chosen


def read_mails(layout: Layout, pin: Pin) -> list[tuple[SeriesPatch, PatchMail]]:
    """The patches of one pin, read and checked, with what they require.

    Raises:
        RigError: a patch breaks a rule, or requires one that is not before it.
    """
    git = Git(layout.patches)
    read: list[tuple[SeriesPatch, PatchMail]] = []
    seen: set[str] = set()
    for patch in patches_for(layout, pin):
        mail = read_mail(patch.path, git)
        require_carried(mail, seen, pin, layout.shown(patch.path))
        seen.add(mail.number)
        read.append((patch, mail))
    return read


def require_carried(mail: PatchMail, carried: Collection[str], pin: Pin, where: object) -> None:
    """Refuse a patch that requires one that is not among those carried before it."""
    missing = [n for n in mail.requires if n not in carried]
    if missing:
        raise RigError(
            f"it requires {', '.join(missing)}, which vLLM {pin.version} does not carry before it",
            where=where,
            next_step="correct its Requires: trailer, or let the pin skip this patch as well",
        )


def digest_of(texts: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over (file name, SHA-256 of the text) pairs, in order."""
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in texts)
    return hashlib.sha256(lines.encode()).hexdigest()


def series_digest(layout: Layout, pin: Pin) -> str:
    """The digest of the texts that serve one pin: the same on every box that carries them."""
    git = Git(layout.patches)
    mails = [(p.name, read_mail(p.path, git)) for p in patches_for(layout, pin)]
    return digest_of((name, mail.sha256) for name, mail in mails)


def stray_files(layout: Layout) -> list[Path]:
    """What lies in `patches/` although neither the series nor a pin knows it."""
    names = set(read_series(layout))
    versions = {p.version for p in read_pins(layout)}
    allowed = {layout.series, layout.revision, layout.pins}
    strays = []
    for path in sorted(layout.patches.iterdir()):
        if path.is_dir() and path.name in versions:
            strays += [p for p in sorted(path.iterdir()) if p.name not in names]
        elif path not in allowed and path.name not in names:
            strays.append(path)
    locks = {f"{v}.lock" for v in versions} | {f"{v}.toml" for v in versions}
    strays += [p for p in sorted(layout.pins.iterdir()) if p.name not in locks]
    return strays
