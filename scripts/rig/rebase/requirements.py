"""What the new release asks for that the old one did not: packages and Python versions."""

from __future__ import annotations

import tomllib
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from rig.git import Git


def changed_requirements(git: Git, old: str, new: str) -> list[str]:
    """A line for each requirement that came, went or changed, by file.

    Args:
        git: a repository with both releases.
        old, new: their commits.
    """
    before, after = _all(git, old), _all(git, new)
    said = []
    for key in sorted(before.keys() | after.keys()):
        one, two = before.get(key), after.get(key)
        if one != two:
            file, name = key
            said.append(f"{file}: {name}{one or ''} -> {name}{two or ''}".strip() if one and two
                        else f"{file}: {name}{two} is new" if two
                        else f"{file}: {name}{one} is gone")  # fmt: skip
    return said


def _all(git: Git, commit: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    listed = git.run(
        "ls-tree", "-r", "-z", "--name-only", commit, "--", "requirements", check=False
    )
    for path in listed.text.split("\0"):
        if path.endswith((".txt", ".in")) and "/test/" not in path:
            text = git.run("show", f"{commit}:{path}").stdout.decode("utf-8", "replace")
            for line in text.splitlines():
                _add(found, path, line.split("#")[0].strip())
    project = _project(git, commit)
    found["pyproject.toml", "Python "] = project.get("project", {}).get("requires-python") or "any"
    for line in project.get("build-system", {}).get("requires", []):
        _add(found, "pyproject.toml (build)", line)
    return found


def _add(found: dict[tuple[str, str], str], path: str, line: str) -> None:
    try:
        wanted = Requirement(line)
    except InvalidRequirement:  # an option, another file, an empty line
        return
    marker = f" ; {wanted.marker}" if wanted.marker else ""
    name = f"{wanted.name}{marker} "
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    found[path, name] = f"{extras}{wanted.specifier or '(any)'}"


def _project(git: Git, commit: str) -> dict[str, Any]:
    done = git.run("show", f"{commit}:pyproject.toml", check=False)
    try:
        return tomllib.loads(done.stdout.decode("utf-8"))
    except (ValueError, UnicodeDecodeError):
        return {}
