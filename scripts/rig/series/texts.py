"""Which text serves a pin: the common one wherever it does exactly the right thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rig.errors import RigError
from rig.git import Git
from rig.pins import Pin
from rig.series.applied import read_back, touched_files
from rig.series.export import verbatim_patch_id
from rig.series.listing import digest_of, require_carried
from rig.series.lock import Lock, LockedFile
from rig.series.mail import PatchMail
from rig.series.mailbox_apply import apply_mails
from rig.series.pristine import BRANCH, PRISTINE_REF


@dataclass(frozen=True)
class Wanted:
    """What a patch must do on a pin, and the text that this pin's own commit exports.

    Args:
        mail: named as the series names it.
        files: the blobs before and after; None when only an override's text knows.
        by_hand: a person made the text for this pin.
    """

    mail: PatchMail
    files: tuple[LockedFile, ...] | None
    by_hand: bool = False


@dataclass(frozen=True)
class Chosen:
    """The texts of one pin.

    Args:
        git: a scratch repository in which they are applied.
        lock: what they give.
        overrides: file name -> the pin's own text; None when the common text serves.
    """

    git: Git
    lock: Lock
    overrides: dict[str, bytes | None]


def choose_texts(
    git: Git, pin: Pin, wanted: Sequence[Wanted], common: Mapping[str, PatchMail]
) -> Chosen:
    """Apply, patch by patch, the common text if it gives the wanted blobs, else the pin's own.

    Args:
        git: a scratch repository made by `make_pristine`; it is put back to its release first.
        pin: the release to serve.
        wanted: what each patch must do, in order.
        common: file name -> common text, for the patches that have one.

    Raises:
        RigError: a pin's own text does not do what its own commit did.
    """
    git.run("checkout", "--quiet", "--force", "-B", BRANCH, PRISTINE_REF)
    git.run("clean", "-qffdx")
    chosen: list[PatchMail] = []
    overrides: dict[str, bytes | None] = {}
    by_hand: list[str] = []
    for want in wanted:
        name = want.mail.name
        require_carried(want.mail, {m.number for m in chosen}, pin, name)
        shared = common.get(name)
        if shared is not None and _serves(git, shared, want):
            overrides[name] = None
            chosen.append(shared)
        else:
            _apply_own(git, want, pin)
            overrides[name] = want.mail.raw
            chosen.append(want.mail)
            if want.by_hand:
                by_hand.append(want.mail.number)
    digest = digest_of((m.name, m.sha256) for m in chosen)
    lock = read_back(git, pin.version, digest, chosen)
    return Chosen(git, lock.model_copy(update={"by_hand": tuple(by_hand)}), overrides)


def _serves(git: Git, shared: PatchMail, want: Wanted) -> bool:
    """Apply the common text; undo it and say no unless it does what the pin's commit does."""
    if shared.message != want.mail.message:
        return False
    if verbatim_patch_id(shared.raw, git) != verbatim_patch_id(want.mail.raw, git):
        return False
    before = git.line("rev-parse", "HEAD")
    try:
        apply_mails(git, [shared], "trial")
        if want.files is None or touched_files(git, before, "HEAD") == want.files:
            return True
    except RigError:
        git.run("am", "--abort", check=False)
    git.run("reset", "--quiet", "--hard", before)
    return False


def _apply_own(git: Git, want: Wanted, pin: Pin) -> None:
    before = git.line("rev-parse", "HEAD")
    apply_mails(git, [want.mail], f"vLLM {pin.version}")
    if want.files is not None and touched_files(git, before, "HEAD") != want.files:
        raise RigError(
            f"{want.mail.name} lands beside its target, also in this pin's own text",
            where=f"vLLM {pin.version}",
            next_step="give the hunk more context: change a line that only its target has near",
        )
