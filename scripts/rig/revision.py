"""`patches/revision`: the N of `0.33.0+rig.N`, raised by hand when a series is released."""

from __future__ import annotations

from rig.errors import RigError
from rig.layout import Layout


def read_revision(layout: Layout) -> int:
    """The revision of the series, 1 or more.

    Raises:
        RigError: the file is missing or holds something else than one whole number.
    """
    try:
        text = layout.revision.read_text("utf-8").strip()
        revision = int(text)
        if revision < 1 or text != str(revision):
            raise ValueError(text)
    except (OSError, ValueError) as error:
        raise RigError(
            f"the revision must be one whole number, 1 or more: {error}",
            where=layout.shown(layout.revision),
            next_step="it is the N of the version 0.33.0+rig.N",
        ) from error
    return revision
