"""docs/log-failures.md: what the reader of logs knows, each cause with its next step."""

from __future__ import annotations

import re

from rig.docs_tables.patches import cell
from rig.engine_log.failures import _STAGES
from rig.engine_log.known import CONSEQUENCES, KNOWN, OUT_OF_MEMORY
from rig.layout import Layout

_CODE = re.compile(r"(`[^`]*`)")
_HEAD = """\
# What a log says, and what to do

Made by `./rig docs --write` from the table by which `./rig doctor --after LOG` and `serve` read the
logs of engine and Ray: do not edit. Of several causes in one log the first in this order counts;
`...` is what the log says there. A *maybe* counts only at the end of a log, since healthy starts
show it, too. By what you see instead: [troubleshooting](troubleshooting.md).
"""


def failure_table(layout: Layout) -> str:
    """The page; `layout` is not asked."""
    rows = []
    for known in KNOWN:
        sure = "follows from another" if known in CONSEQUENCES else "cause"
        rows.append(_row(known.cause, "maybe" if known.only_at_end else sure, known.next_step))
        if known is OUT_OF_MEMORY:
            rows += [_row(f"{known.cause} {when}", sure, step) for _, when, step in _STAGES]
    return "\n".join([_HEAD, "| what happened | | next step |", "|---|---|---|", *rows, ""])


def said_of(text: str) -> str:
    """A cause or step with its places for words of the log shown as dots."""
    return re.sub(r"\{\d\}", "...", text)


def _row(cause: str, kind: str, step: str) -> str:
    return f"| {_plain(said_of(cause))} | {kind} | {_plain(said_of(step))} |"


def _plain(text: str) -> str:
    """Text in a cell; what stands between backticks stays code."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else cell(part) for part in parts)
