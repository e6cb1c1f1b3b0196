"""A build and a cluster of it, for the tests of heads and of boxes that join."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rig.launch.cluster import Cluster, labels_of
from rig.launch.cluster_token import make_token_file
from rig.launch.engine_environment import describe
from rig.pins import Flavour
from rig.wheel.installed import InstalledEngine
from rig.wheel.provenance import Provenance, ProvenancePatch

from .conftest import FakeEngine

PROVENANCE = Provenance(
    version="9.9.9+rig.1.cpu",
    release="9.9.9",
    commit="c" * 40,
    flavour=Flavour.CPU,
    series="5" * 64,
    tree="7" * 40,
    patches=(),
    files={"vllm/a.py": "a" * 64},
    removed=(),
    schema_=1,
)


def installed(python: Path) -> InstalledEngine:
    return InstalledEngine(python, PROVENANCE.version, python.parent, PROVENANCE, 1)


def installed_with_0504(python: Path) -> InstalledEngine:
    """A build with the patch that puts torch's store on loopback."""
    patch = ProvenancePatch(number="0504", subject="s", file="0504-s.patch", sha256="5" * 64)
    told = PROVENANCE.model_copy(update={"patches": (patch,)})
    return replace(installed(python), provenance=told)


def cluster_of(engine: FakeEngine, tmp_path: Path) -> Cluster:
    environment = describe(engine.python)
    make_token_file(tmp_path / "token")
    return Cluster(
        address="127.0.0.1",
        interface="lo",
        nodes=2,
        cards=1,
        token_file=tmp_path / "token",
        labels=labels_of(PROVENANCE, environment.ray, environment.python_version),
        join_timeout_s=20,
    )
