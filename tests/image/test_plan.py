"""The build's command line, for each program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.image.base import Base
from rig.image.plan import ImagePlan, build_command, labels_of, tag_of
from rig.image.tools import Tool
from rig.pins import Arch, Flavour
from rig.wheel.inspect import describe

from ..wheel.wheel_fabric import CHANGES, Fabric

DIGEST = "sha256:" + "a" * 64
BASE = Base(f"vllm/vllm-openai@{DIGEST}", "vllm/vllm-openai:v0.33.0", DIGEST)
PLAN = ImagePlan(
    tool=Tool.DOCKER,
    tag="vllm-rig:0.33.0-rig.4-cuda",
    arch=Arch.X86_64,
    base=BASE,
    labels={"a": "1"},
    context=Path("/c"),
)
SHARED = ["--build-arg", f"BASE={BASE.reference}", "--build-arg", "RIG_ARCH=x86_64"]
SHARED += ["--label", "a=1"]


def test_docker() -> None:
    assert build_command(PLAN) == [
        *("docker", "build", "--platform", "linux/amd64"),
        *SHARED,
        *("--tag", PLAN.tag, "/c"),
    ]


@pytest.mark.parametrize("tool", [Tool.PODMAN, Tool.BUILDAH])
def test_the_health_check_needs_docker_s_format(tool: Tool) -> None:
    assert build_command(replace(PLAN, tool=tool)) == [
        *(tool, "build", "--platform", "linux/amd64"),
        *("--format", "docker", "--layers", "--force-rm", "--pull=false"),
        *SHARED,
        *("--tag", PLAN.tag, "/c"),
    ]


def test_pip_s_settings_are_a_secret_and_the_user_s_words_come_last() -> None:
    plan = replace(PLAN, pip_settings=Path("/p/pip.conf"), more=("--no-cache",))
    command = build_command(plan)
    assert command[-3:] == [PLAN.tag, "--no-cache", "/c"]
    assert command[command.index("--secret") + 1] == "id=pip,src=/p/pip.conf"


@pytest.mark.parametrize(
    ("version", "flavour", "tag"),
    [
        ("0.33.0+rig.4", Flavour.CUDA, "vllm-rig:0.33.0-rig.4-cuda"),
        ("0.32.0+rig.4.cpu", Flavour.CPU, "vllm-rig:0.32.0-rig.4-cpu"),
    ],
)
def test_tags(version: str, flavour: Flavour, tag: str) -> None:
    assert tag_of(version, flavour) == tag


def test_labels_say_what_the_wheel_says(fabric: Fabric) -> None:
    wheel = fabric.build(fabric.series(CHANGES))
    provenance = describe(wheel.path)
    labels = labels_of(provenance, wheel.sha256, BASE)
    assert labels["vllm-rig.pin"] == "1.2.3"
    assert labels["vllm-rig.series"] == "cd" * 32
    assert labels["vllm-rig.tree"] == fabric.git.tree_id()
    assert labels["vllm-rig.wheel.sha256"] == wheel.sha256
    assert labels["org.opencontainers.image.base.digest"] == DIGEST
    unknown = labels_of(provenance, wheel.sha256, Base("x:1", "x:1", ""))
    assert "org.opencontainers.image.base.digest" not in unknown
