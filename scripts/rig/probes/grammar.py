"""The `Probes:` trailer of a patch.

    symbol vllm.config.offload:OffloadConfig.compute_hash
    once vllm/config/vllm.py "self._validate_adaptive_verification()"

A `symbol` must be there, as a function, class or attribute, with the parameters that it has in the
release that the patch is made for. A text must be there exactly once. Probes are separated by
semicolons; within the quotes `\\"` is a quote and `\\\\` a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rig.errors import RigError
from rig.series.mail import PatchMail

_SYMBOL = re.compile(r"symbol\s+(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)\s*")
_ONCE = re.compile(r'once\s+(?P<path>[^\s"]+)\s+"(?P<text>(?:[^"\\]|\\.)+)"\s*')


@dataclass(frozen=True)
class Symbol:
    """A name in a module, e.g. `vllm.config.offload`, `OffloadConfig.compute_hash`."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"symbol {self.module}:{self.name}"


@dataclass(frozen=True)
class Once:
    """A text that occurs exactly once in a file."""

    path: str
    text: str

    def __str__(self) -> str:
        return f'once {self.path} "{self.text}"'


Probe = Symbol | Once


def parse_probes(texts: Sequence[str], where: object = None) -> list[Probe]:
    """The probes of one patch's trailers.

    Raises:
        RigError: a probe is neither of the two kinds; shows the text from there on.
    """
    probes: list[Probe] = []
    for text in texts:
        rest = " ".join(text.split())
        while rest:
            if match := _SYMBOL.match(rest):
                probes.append(Symbol(match["module"], match["name"]))
            elif match := _ONCE.match(rest):
                probes.append(Once(match["path"], re.sub(r"\\(.)", r"\1", match["text"])))
            else:
                raise _not_a_probe(rest, where)
            rest = rest[match.end() :]
            if rest and not rest.startswith(";"):
                raise _not_a_probe(rest, where)
            rest = rest[1:].lstrip()
    return probes


def probes_of(mail: PatchMail) -> list[Probe]:
    """The probes of a patch; none if it names none."""
    return parse_probes(mail.trailers.get("Probes", ()), where=mail.name)


def _not_a_probe(rest: str, where: object) -> RigError:
    return RigError(
        f"this is no probe: {rest[:80]}",
        where=where,
        next_step='write `symbol module:Name.attribute` or `once path/file.py "text"`, '
        "with a semicolon between two of them",
    )
