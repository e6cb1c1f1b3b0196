"""Which program builds, and what is read out of its answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from rig.errors import RigError
from rig.image.tools import Answered, Tool, find, inspect_command, pull_command, read_inspection
from rig.pins import Arch

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def which(*there: str):  # type: ignore[no-untyped-def]
    return lambda name: f"/usr/bin/{name}" if name in there else None


def works(command: Sequence[str]) -> Answered:
    return Answered(0, "28.2.2\n", "")


def without_engine(command: Sequence[str]) -> Answered:
    if command[0] == "docker":
        return Answered(1, "", "Cannot connect to the Docker daemon. Is it running?\n")
    return Answered(0, "", "")


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (("docker", "podman", "buildah"), "docker"),
        (("podman", "buildah"), "podman"),
        (("buildah",), "buildah"),
    ],
)
def test_the_first_that_is_there(there: tuple[str, ...], chosen: str) -> None:
    assert find(ask=works, which=which(*there)) == (chosen, [])


def test_a_client_without_its_engine_is_passed_over_and_said() -> None:
    tool, said = find(ask=without_engine, which=which("docker", "buildah"))
    assert tool is Tool.BUILDAH
    assert said == ["docker: Cannot connect to the Docker daemon. Is it running?"]


def test_the_one_that_was_asked_for_is_not_replaced() -> None:
    with pytest.raises(RigError, match="docker: Cannot connect") as caught:
        find(Tool.DOCKER, ask=without_engine, which=which("docker", "buildah"))
    assert "buildah" not in str(caught.value.detail)


def test_none_is_there() -> None:
    with pytest.raises(RigError) as caught:
        find(ask=works, which=which())
    assert caught.value.detail == "docker: not installed\npodman: not installed\n" + (
        "buildah: not installed"
    )


def test_what_is_fetched_is_for_the_processor() -> None:
    assert pull_command(Tool.PODMAN, "x:1", Arch.AARCH64) == [
        *("podman", "pull", "--platform", "linux/arm64", "x:1")
    ]


def test_docker_s_answer() -> None:
    text = json.dumps(
        [{"RepoDigests": [f"x@{B}", f"v/v@{A}"], "Architecture": "amd64", "Size": 12}]
    )
    found = read_inspection(Tool.DOCKER, text, "v/v")
    assert (found.digests, found.arch, found.bytes) == ((A,), "amd64", 12)
    assert inspect_command(Tool.DOCKER, "v/v:1") == ["docker", "image", "inspect", "v/v:1"]


def test_podman_s_answer_has_a_host_before_the_name() -> None:
    text = json.dumps(
        [{"RepoDigests": [f"a.example/v/v@{A}", f"a.example/v/v@{B}"], "Digest": B, "Size": 7}]
    )
    assert read_inspection(Tool.PODMAN, text, "v/v").digests == (A, B)


def test_an_image_that_was_made_here_has_no_digest_in_docker() -> None:
    text = json.dumps([{"RepoDigests": [], "Architecture": "amd64", "Size": 1}])
    assert read_inspection(Tool.DOCKER, text, "v/v").digests == ()


def test_buildah_s_answer() -> None:
    text = json.dumps({"FromImageDigest": A, "OCIv1": {"architecture": "arm64"}})
    found = read_inspection(Tool.BUILDAH, text, "v/v")
    assert (found.digests, found.arch, found.bytes) == ((A,), "arm64", None)


def test_buildah_knows_an_image_of_several_processors_by_its_list() -> None:
    """The form that buildah 1.28 gave for one that was fetched by the digest of its list."""
    answer = {"FromImage": f"host:5000/v/v@{B}", "FromImageDigest": A}
    assert read_inspection(Tool.BUILDAH, json.dumps(answer), "v/v").digests == (A, B)
    answer = {"FromImage": f"host:5000/w/v@{B}", "FromImageDigest": A}
    assert read_inspection(Tool.BUILDAH, json.dumps(answer), "v/v").digests == (A,)


@pytest.mark.parametrize("text", ["", "[]", "[1]", "nonsense", "[{}, {}]"])
def test_an_answer_of_another_form(text: str) -> None:
    with pytest.raises(RigError, match="not known here"):
        read_inspection(Tool.DOCKER, text, "v/v")
