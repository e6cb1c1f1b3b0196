"""Write `patches/series` anew and keep a person's comments where they stood."""

from __future__ import annotations

from collections.abc import Sequence


def series_text(old: str, names: Sequence[str]) -> str:
    """The new text of the series file.

    A comment line stays before the patch that followed it, or before the next one that is
    still there. New patches come after their predecessor, so a topic's comment covers them.

    Args:
        old: the text as it is.
        names: the patch file names, in order.
    """
    wanted = {name[:4]: name for name in names}
    comments: dict[str | None, list[str]] = {}
    pending: list[str] = []
    for line in old.splitlines():
        name = line.split("#", 1)[0].strip()
        if not name:
            pending.append(line)
        elif name[:4] in wanted:
            comments[name[:4]] = pending
            tail = line.partition("#")[2]
            if tail:
                comments[name[:4]] = [*pending, f"#{tail}"]
            pending = []
    comments[None] = pending
    lines: list[str] = []
    # Without any patch that stayed, the comments are the head of the file.
    head_only = not any(key in comments for key in wanted)
    if head_only:
        lines += comments.pop(None, [])
    for number, name in wanted.items():
        lines += comments.get(number, [])
        lines.append(name)
    lines += comments.get(None, [])
    return "\n".join(lines).strip("\n") + "\n"
