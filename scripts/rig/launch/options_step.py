"""The step of `serve` that refuses an option which vLLM does not know, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rig.box.rig_file import Rig
from rig.errors import RigError
from rig.launch.command_line import OUR_OPTIONS
from rig.launch.plan import ServeOptions
from rig.options.cache import cached_table, table_of
from rig.options.check import check_arguments, spell_out
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
    check_arguments(table, model, arguments, OUR_OPTIONS)
    return ""


def spelled_out(rig: Rig, options: ServeOptions, installation: object) -> tuple[Rig, ServeOptions]:
    """Both with whole names of vLLM's options; as they are where its options are not known."""
    provenance = getattr(installation, "provenance", None)
    table = cached_table(provenance) if isinstance(provenance, Provenance) else None
    if table is None:
        return rig, options
    from_rig = {"arguments": spell_out(table, rig.defaults.arguments)}
    defaults = rig.defaults.model_copy(update=from_rig)
    extra = spell_out(table, options.extra_arguments)
    return (
        rig.model_copy(update={"defaults": defaults}),
        replace(options, extra_arguments=extra),
    )


def refuse_beginnings(rig: Rig, options: ServeOptions, installation: object) -> None:
    """Refuse a beginning of an option's name where the plan was made before vLLM's were known.

    Raises:
        RigError: vLLM would take a word for an option that the plan did not see.
    """
    whole_rig, whole = spelled_out(rig, options, installation)
    given = (*rig.defaults.arguments, *options.extra_arguments)
    spelled = (*whole_rig.defaults.arguments, *whole.extra_arguments)
    for word, meant in zip(given, spelled, strict=True):
        name, whole_name = (w.partition("=")[0].partition(".")[0] for w in (word, meant))
        if name.startswith("--") and name.replace("_", "-") != whole_name:
            raise RigError(
                f"vLLM takes {name} for {whole_name}, but the plan over the boxes did not see it",
                next_step=f"write {whole_name}",
            )


def installed(python: Path) -> object:
    """The rig build that an interpreter has installed, or None."""
    from rig.wheel.installed import check_installation

    try:
        return check_installation(python)
    except RigError:
        return None
