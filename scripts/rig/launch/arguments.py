"""Read what a user asked of vLLM without importing vLLM.

vLLM spells an option with dashes or underscores, takes `--name value`, `--name=value` and an
unambiguous beginning of the name, and reads JSON options piece by piece (`--name.key value`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rig.errors import RigError

# Where vLLM's options are known its names are spelled out before anything is read here
# (`rig.options.check.spell_out`); this is for when they are not. Shorter ones are mostly ambiguous.
_SHORTEST_ABBREVIATION = len("--tensor-p")
# Where much less is enough, as vLLM 0.31 to 0.33 have no other option that begins so.
_SHORTER = {"--host": len("--ho"), "--port": len("--por")}


def _name_and_value(argument: str) -> tuple[str, str | None]:
    name, equals, value = argument.partition("=")
    name = name.partition(".")[0]
    if name.startswith("--"):
        name = name.replace("_", "-")
    return name, value if equals else None


def _names(argument: str, option: str, aliases: Sequence[str]) -> bool:
    name, _ = _name_and_value(argument)
    if name == option or name in aliases:
        return True
    least = _SHORTER.get(option, _SHORTEST_ABBREVIATION)
    return len(name) >= least and option.startswith(name)


def _negates(argument: str, option: str) -> bool:
    """Whether an argument turns a switch off: `--no-x`, and since 0.33 `--disable-x` for
    `--enable-x` and the other way round."""
    negations = ["--no-" + option.removeprefix("--")]
    for prefix, inverse in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if option.startswith(prefix):
            negations.append(inverse + option.removeprefix(prefix))
    return any(_names(argument, negation, ()) for negation in negations)


def has_option(arguments: Sequence[str], option: str, *aliases: str) -> bool:
    """Whether the option, its negation (`--no-...`) or an alias of it is among the arguments."""
    return any(
        _names(argument, option, aliases) or _negates(argument, option) for argument in arguments
    )


def value_of(arguments: Sequence[str], option: str, *aliases: str) -> str | None:
    """The value that vLLM would take for an option: the last one given, or None.

    Raises:
        RigError: the option is the last word and has no value.
    """
    found: str | None = None
    for index, argument in enumerate(arguments):
        if not _names(argument, option, aliases):
            continue
        _, found = _name_and_value(argument)
        if found is None:
            if index + 1 >= len(arguments):
                raise RigError(f"{option} needs a value", where=argument)
            found = arguments[index + 1]
    return found


def whole_number_of(
    arguments: Sequence[str], option: str, *aliases: str, least: int = 1, most: int | None = None
) -> int | None:
    """The value of an option that counts something, or None if it was not given.

    Raises:
        RigError: it is not a whole number, smaller than `least`, or larger than `most`.
    """
    text = value_of(arguments, option, *aliases)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        span = f"{least} or more" if most is None else f"{least} to {most}"
        raise RigError(f"{option} is {text!r}", next_step=f"give a whole number, {span}")
    return number


def switch_of(arguments: Sequence[str], option: str) -> bool | None:
    """Whether a switch was turned on or off (`--no-...`), the last word counting; else None."""
    found: bool | None = None
    for argument in arguments:
        if _names(argument, option, ()):
            found = True
        elif _negates(argument, option):
            found = False
    return found


def pieces_of(arguments: Sequence[str], option: str) -> dict[str, object]:
    """The value of an option that takes JSON, whole or piece by piece, as an object.

    What cannot be read is left out: vLLM says so itself.
    """
    found: dict[str, object] = {}
    for index, argument in enumerate(arguments):
        if not _names(argument, option, ()):
            continue
        head, equals, value = argument.partition("=")
        if not equals:
            value = arguments[index + 1] if index + 1 < len(arguments) else ""
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        _, dot, key = head.partition(".")
        if dot:
            found[key] = read
        elif isinstance(read, dict):
            found = {str(name): of for name, of in read.items()}
    return found
