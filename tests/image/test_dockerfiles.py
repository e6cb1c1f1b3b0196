"""Both Dockerfiles: their order, who runs, and what they stand on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rig.image.base import CPU_BASE
from rig.layout import Layout
from rig.pins import find_pin, primary_pin

FILES = ["Dockerfile", "Dockerfile.cpu"]


def instructions(path: Path) -> list[str]:
    """The instructions, continued lines joined, comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line]


def final_stage(path: Path) -> list[str]:
    found = instructions(path)
    last = max(n for n, line in enumerate(found) if line.startswith("FROM "))
    return found[last:]


@pytest.mark.parametrize("name", FILES)
def test_a_new_series_changes_the_last_layers_alone(docker: Path, name: str) -> None:
    stage = final_stage(docker / name)
    assert stage[0] == "FROM base"
    places = [n for n, line in enumerate(stage) if "/changed/series" in line or " series/" in line]
    first = min(places)
    assert not [line for line in stage[:first] if "wheel" in line or "RIG_ARCH" in line]
    rest = [line.split()[0] for line in stage[first:]]
    assert rest[:2] == ["COPY", "RUN"]
    assert set(rest[2:]) <= {
        *("ARG", "ENV", "USER", "WORKDIR", "EXPOSE"),
        *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }


@pytest.mark.parametrize("name", FILES)
def test_what_the_wheel_brings_is_proven(docker: Path, name: str) -> None:
    assert (
        "rig inspect --full"
        in [line for line in final_stage(docker / name) if line.startswith("RUN")][-1]
    )


@pytest.mark.parametrize("name", FILES)
def test_nobody_is_root_at_the_end(docker: Path, name: str) -> None:
    users = [line for line in final_stage(docker / name) if line.startswith("USER")]
    assert users == ["USER ${RIG_UID}"]


@pytest.mark.parametrize("name", FILES)
def test_health_is_a_real_request(docker: Path, name: str) -> None:
    (check,) = [line for line in final_stage(docker / name) if line.startswith("HEALTHCHECK")]
    assert '"/opt/vllm-rig/entrypoint.sh", "health"' in check


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_installed_without_a_digest_or_a_version(docker: Path, name: str) -> None:
    for line in instructions(docker / name):
        if "pip install" in line:
            assert "--require-hashes" in line or "-c /opt/vllm-rig/engine.txt" in line


def test_ray_is_the_one_that_the_launcher_knows(docker: Path) -> None:
    from rig.launch.engine_environment import RAY_VERSION

    assert re.search(r"^ray==(\S+)", (docker / "ray.txt").read_text(), re.M)[1] == RAY_VERSION  # type: ignore[index]


def test_ray_s_own_companions_are_those_of_the_cpu_engine(docker: Path, checkout: Layout) -> None:
    pinned = (checkout.root / "requirements" / "engine-0.32.0.txt").read_text().splitlines()
    ours = re.findall(r"^(\S+==\S+) ", (docker / "ray.txt").read_text(), re.MULTILINE)
    assert len(ours) == 2
    assert set(ours) <= set(pinned)


def test_the_bases_are_those_of_the_pins(docker: Path, checkout: Layout) -> None:
    pin = primary_pin(checkout)
    name = pin.image.name if pin.image else f"vllm/vllm-openai:v{pin.version}"
    assert f"ARG BASE={name}" in instructions(docker / "Dockerfile")
    assert f"ARG BASE={CPU_BASE}" in instructions(docker / "Dockerfile.cpu")
    assert find_pin(checkout, "0.32.0").image is None or "@" not in name


@pytest.mark.parametrize("name", FILES)
def test_hadolint(docker: Path, name: str) -> None:
    beside = Path(sys.executable).with_name("hadolint")
    linter = str(beside) if beside.exists() else shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, str(docker / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
