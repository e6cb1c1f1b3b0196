"""Write `patches/series` anew and keep a person's comments where they stood."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOPIC = re.compile(r"^#\s*([0-9]{2})xx\b")
_END = ("9999", 2)


def series_text(old: str, names: Sequence[str]) -> str:
    """The new text of the series file.

    A topic's comment (`# 02xx tower streaming`) stands before the patches of its numbers. Any
    other comment stays before the patch or topic that followed it, or before the next one that
    is still there.

    Args:
        old: the text as it is.
        names: the patch file names, in order.
    """
    wanted = {name[:4]: name for name in names}
    entries: list[tuple[tuple[str, int], str]] = []
    pending: list[str] = []
    for line in old.splitlines():
        name, _, tail = line.partition("#")
        topic = _TOPIC.match(line)
        if topic:
            key = (f"{topic[1]}00", 0)
            entries += [(key, comment) for comment in [*pending, line]]
            pending = []
        elif not name.strip():
            pending.append(line)
        elif name.strip()[:4] in wanted:
            key = (name.strip()[:4], 0)
            beside = [f"#{tail}"] if tail else []
            entries += [(key, comment) for comment in [*pending, *beside]]
            pending = []
    entries += [(_END, comment) for comment in pending]
    entries += [((number, 1), name) for number, name in wanted.items()]
    entries.sort(key=lambda entry: entry[0])
    return "\n".join(line for _, line in entries).strip("\n") + "\n"
