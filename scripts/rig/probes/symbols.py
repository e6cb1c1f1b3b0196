"""Find a name in a module's source, with griffe: nothing of vLLM is imported or run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import griffe

from rig.probes.sources import Source

_DEEPEST = 8  # re-exports and base classes that are followed from one name to the next


@dataclass(frozen=True)
class Definition:
    """Where a name is defined.

    Args:
        path: the file.
        line: its first line.
        kind: "function", "class", "attribute" or "module".
        signature: parameters with their defaults, for functions; "" else.
    """

    path: str
    line: int
    kind: str
    signature: str


@dataclass
class Modules:
    """The modules of one tree, each parsed once."""

    source: Source
    _parsed: dict[str, tuple[str, griffe.Module] | None] = field(default_factory=dict)

    def find(self, module: str, name: str, depth: int = 0) -> Definition | None:
        """The definition of a name, through re-exports and base classes; None if there is none."""
        parsed = self._module(module)
        if parsed is None or depth > _DEEPEST:
            return None
        path, top = parsed
        current: griffe.Object = top
        parts = name.split(".")
        for at, part in enumerate(parts):
            member = current.members.get(part)
            rest = ".".join(parts[at + 1 :])
            if member is None:
                if isinstance(current, griffe.Class):
                    return self._inherited(current, ".".join(parts[at:]), top, depth)
                return None
            if member.is_alias:
                return self._elsewhere(cast(griffe.Alias, member).target_path, rest, depth)
            current = cast(griffe.Object, member)
        return _definition(path, current)

    def _elsewhere(self, dotted: str, rest: str, depth: int) -> Definition | None:
        """A name that another module defines: `vllm.a.b.Name` may be split at any dot."""
        parts = dotted.split(".")
        for split in range(len(parts) - 1, 0, -1):
            module, name = ".".join(parts[:split]), ".".join(parts[split:])
            if self._module(module) is not None:
                return self.find(module, f"{name}.{rest}" if rest else name, depth + 1)
        if not rest and (parsed := self._module(dotted)) is not None:
            return Definition(parsed[0], 1, "module", "")
        return None

    def _inherited(
        self, owner: griffe.Class, name: str, top: griffe.Module, depth: int
    ) -> Definition | None:
        for base in owner.bases:
            wanted = str(base).split("[")[0]
            found = self.find(top.path, f"{wanted}.{name}", depth + 1)
            if found is not None:
                return found
        return None

    def _module(self, dotted: str) -> tuple[str, griffe.Module] | None:
        if dotted not in self._parsed:
            self._parsed[dotted] = self._parse(dotted)
        return self._parsed[dotted]

    def _parse(self, dotted: str) -> tuple[str, griffe.Module] | None:
        stem = dotted.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            raw = self.source.read(path)
            if raw is None:
                continue
            parent, _, name = dotted.rpartition(".")
            try:
                module = griffe.visit(
                    name,
                    filepath=Path(path),
                    code=raw.decode("utf-8"),
                    parent=_package(parent) if parent else None,
                )
            except (SyntaxError, UnicodeDecodeError):
                return None
            return path, module
        return None


def _package(dotted: str) -> griffe.Module:
    """An empty package, so that griffe knows what a relative import is relative to."""
    parent, _, name = dotted.rpartition(".")
    path = Path(dotted.replace(".", "/")) / "__init__.py"
    return griffe.Module(name, filepath=path, parent=_package(parent) if parent else None)


def _definition(path: str, found: griffe.Object) -> Definition:
    signature = ""
    if isinstance(found, griffe.Function):
        signature = ", ".join(_parameter(p) for p in found.parameters)
    elif isinstance(found, griffe.Attribute):
        signature = "property" if "property" in found.labels else ""
    return Definition(path, found.lineno or 1, found.kind.value, signature)


def _parameter(parameter: griffe.Parameter) -> str:
    """A parameter as a caller sees it: annotations may change without harm."""
    stars = {
        griffe.ParameterKind.var_positional: "*",
        griffe.ParameterKind.var_keyword: "**",
    }
    if parameter.kind in stars:
        return f"{stars[parameter.kind]}{parameter.name}"
    kind = {
        griffe.ParameterKind.keyword_only: "keyword ",
        griffe.ParameterKind.positional_only: "positional ",
    }.get(cast(griffe.ParameterKind, parameter.kind), "")
    default = "" if parameter.default is None else f"={parameter.default}"
    return f"{kind}{parameter.name}{default}"
