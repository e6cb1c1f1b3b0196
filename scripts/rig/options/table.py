"""The option table of one engine, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA = 1

# "size": a whole number that may end in k, m, g, t (thousands) or K, M, G, T (1024s). "json": any
# JSON value; "object": JSON in braces.
Kind = Literal["text", "integer", "size", "number", "json", "object"]
_KINDS: dict[tuple[str, ...], Kind] = {
    ("7",): "integer",
    ("7", "1k"): "size",
    ("7", "1k", "auto"): "size",
    ("7", "1.5"): "number",
    ("7", "1.5", "{}", '"word"'): "json",
    ("{}",): "object",
}


class Option(BaseModel):
    """One option of `vllm serve`.

    Args:
        names: every spelling that the parser takes, e.g. ("--tensor-parallel-size", "-tp").
        nargs: argparse's: None for one value, 0 for none, "?", "+", "*", or a count.
        kind: what a value must look like.
        auto: whether the word "auto" is taken as well.
        choices: the only values, or None.
        loose: the choices are matched without regard to case, and to dash or underscore.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[str, ...]
    nargs: int | str | None = None
    kind: Kind = "text"
    auto: bool = False
    choices: tuple[str, ...] | None = None
    loose: bool = False


class OptionTable(BaseModel):
    """All options of one build of vLLM; `version` is that build's, e.g. "0.33.0+rig.3"."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    options: tuple[Option, ...]

    def option(self, name: str) -> Option | None:
        """The option that has exactly this spelling."""
        return next((option for option in self.options if name in option.names), None)


def table_from_engine(version: str, said: Sequence[dict[str, Any]]) -> OptionTable:
    """The table from what `in_engine.py` prints.

    A type that takes none of the probes that we know a kind for counts as text: such a value is
    left to vLLM, never refused here.
    """
    options: list[Option] = []
    for raw in said:
        accepts = tuple(raw["accepts"])
        options.append(
            Option(
                names=tuple(raw["names"]),
                nargs=raw["nargs"],
                kind=_KINDS.get(accepts, "text"),
                auto="auto" in accepts,
                choices=None if raw["choices"] is None else tuple(raw["choices"]),
                loose=bool(raw["typed"]),
            )
        )
    return OptionTable(version=version, options=tuple(options))
