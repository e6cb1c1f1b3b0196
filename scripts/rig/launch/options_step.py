"""The step of `serve` that refuses an option which vLLM does not know, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rig.errors import RigError
from rig.options.cache import cached_table, table_of
from rig.options.check import check_arguments
from rig.wheel.provenance import Provenance


def check_options(
    python: Path,
    model: str,
    arguments: Sequence[str],
    installation: object,
    tell: Callable[[str], None],
    *,
    ask: bool,
) -> str:
    """Check vLLM's arguments; "" if that was done, else why it was not.

    Args:
        installation: what the check of the installation said.
        ask: whether the engine may be started for its table, which takes seconds, once.

    Raises:
        RigError: vLLM would refuse an argument.
    """
    provenance = getattr(installation, "provenance", None)
    if not isinstance(provenance, Provenance):
        return "vLLM takes these arguments: no rig build of it is installed to be asked"
    table = table_of(python, provenance, tell=tell) if ask else cached_table(provenance)
    if table is None:
        return "vLLM takes these arguments: it was never asked yet, `serve` does that once"
    check_arguments(table, model, arguments)
    return ""


def installed(python: Path) -> object:
    """The rig build that an interpreter has installed, or None."""
    from rig.wheel.installed import check_installation

    try:
        return check_installation(python)
    except RigError:
        return None
