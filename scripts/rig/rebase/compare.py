"""A result beside what is committed for a release that is pinned already."""

from __future__ import annotations

from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin
from rig.series.listing import patches_for
from rig.series.lock import read_lock
from rig.series.mail import PatchMail, read_mail


def own_texts(layout: Layout, pin: Pin) -> dict[str, PatchMail]:
    """Patch number -> the text that a person made for a pin, where it has a lock that says so."""
    if not layout.lock(pin.version).exists():
        return {}
    by_hand = set(read_lock(layout, pin.version).by_hand)
    git = Git(layout.patches)
    return {
        patch.number: read_mail(patch.path, git)
        for patch in patches_for(layout, pin)
        if patch.number in by_hand
    }


def compare(layout: Layout, pin: Pin, git: Git) -> tuple[bool, str]:
    """Whether HEAD is the tree that a pin's lock gives, and in words what differs if not."""
    lock = read_lock(layout, pin.version)
    found = git.tree_id()
    if found == lock.final:
        return True, f"the result is the committed series of vLLM {pin.version}: tree {found[:12]}"
    last = {f.path: f.after for patch in lock.patch for f in patch.file}
    touched: dict[str, list[str]] = {}
    for patch in lock.patch:
        for file in patch.file:
            touched.setdefault(file.path, []).append(patch.name[:4])
    here = {}
    for entry in git.null_separated("ls-tree", "-r", "-z", "HEAD", "--", *sorted(last)):
        meta, _, path = entry.partition("\t")
        here[path] = meta.split()[2]
    differs = sorted(path for path, blob in last.items() if here.get(path, "0" * 40) != blob)
    numbers = sorted({number for path in differs for number in touched[path]})
    return False, (
        f"the result is not the committed series of vLLM {pin.version}: {len(differs)} files "
        f"differ ({', '.join(differs[:5])}{', ...' if len(differs) > 5 else ''}), of patches "
        f"{', '.join(numbers) or 'none of ours'}"
    )
