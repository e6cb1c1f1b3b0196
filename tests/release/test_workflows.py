"""The hosted CI does what a person does: it calls make, with as few rights as it needs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
OURS = ("ci", "release")
QUILT = "sudo apt-get update -qq && sudo apt-get install -y -qq quilt"


def workflow(name: str) -> dict[Any, Any]:
    loaded = yaml.safe_load((FOLDER / f"{name}.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def steps(name: str) -> list[tuple[str, dict[str, Any]]]:
    jobs = workflow(name)["jobs"]
    return [(job, step) for job, body in jobs.items() for step in body["steps"]]


def commands(name: str, job: str | None = None) -> list[str]:
    return [s["run"] for j, s in steps(name) if "run" in s and job in (None, j)]


@pytest.mark.parametrize("name", OURS)
def test_they_call_make_only(name: str) -> None:
    others = [
        c
        for c in commands(name)
        if not re.fullmatch(r"make [a-z]+( [A-Z_]+=\S+)*", c) and c != QUILT
    ]
    if name == "release":  # what only the host can do
        (publish,) = others
        assert "sha256sum --check" in publish and "gh release create" in publish
    else:
        assert others == []


def test_every_push_is_applied_verified_tested_and_built() -> None:
    assert workflow("ci")[True]["push"] == {"branches": ["**"]}  # YAML 1.1 reads `on` as true
    targets = {c.split()[1] for c in commands("ci") if c.startswith("make ")}
    assert targets == {"apply", "verify", "test", "build", "docs"}


@pytest.mark.parametrize("name", OURS)
def test_each_make_command_is_one_that_the_makefile_knows(name: str) -> None:
    for line in commands(name):
        if line.startswith("make "):
            dry = ["make", "--dry-run", *line.split()[1:]]
            done = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (line, done.stderr)


@pytest.mark.parametrize("name", [*OURS, "forecast"])
def test_rights_are_as_few_as_can_be(name: str) -> None:
    found = workflow(name)
    writes = {
        (job, right)
        for job, body in [("", found), *found["jobs"].items()]
        for right, level in (body.get("permissions") or {}).items()
        if level != "read"
    }
    assert found["permissions"]["contents"] == "read"
    allowed = {"ci": set(), "release": {("publish", "contents")}, "forecast": {("", "issues")}}
    assert writes == allowed[name]
    for job, step in steps(name):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, job


@pytest.mark.parametrize("name", [*OURS, "forecast"])
def test_every_job_ends_by_itself(name: str) -> None:
    for job, body in workflow(name)["jobs"].items():
        assert 0 < body["timeout-minutes"] <= 180, job


@pytest.mark.parametrize("name", [*OURS, "forecast"])
def test_runs_of_one_kind_do_not_meet(name: str) -> None:
    found = workflow(name)["concurrency"]
    assert found["group"]
    # A release or an issue that is half written is worse than one that waits.
    assert found["cancel-in-progress"] is (name == "ci")


@pytest.mark.parametrize("name", OURS)
def test_actions_are_github_s_own_and_pinned_by_major_version_with_a_comment(name: str) -> None:
    lines = [n for n in (FOLDER / f"{name}.yml").read_text().splitlines() if "uses:" in n]
    assert lines
    for line in lines:
        assert re.search(r"uses: actions/[a-z-]+@v(\d+) # major version \1$", line), line


def test_the_job_that_may_write_runs_no_code_of_ours() -> None:
    jobs = [j for j, _ in steps("release")]
    assert "publish" in jobs
    uses = [s["uses"] for j, s in steps("release") if j == "publish" and "uses" in s]
    assert [u.split("@")[0] for u in uses] == ["actions/download-artifact"]
    assert not [c for c in commands("release", "publish") if "make" in c.split()]


@pytest.mark.parametrize("name", [*OURS, "forecast"])
def test_no_text_of_others_gets_into_a_command(name: str) -> None:
    """A branch or tag name is data of whoever pushed it: it goes through the environment."""
    assert [c for c in commands(name) if "${{" in c] == []


def test_the_release_starts_at_release_tags_only() -> None:
    (pattern,) = workflow("release")[True]["push"]["tags"]
    # In the host's patterns a plus means "once or more" of what stands before it.
    assert pattern == r"v*\+rig.*"
    made = [s for j, s in steps("release") if j == "make"]
    checkout = next(s for s in made if "checkout" in s.get("uses", ""))
    assert checkout["with"]["fetch-depth"] == 0  # else the changelog would begin nowhere


def test_nothing_is_made_before_the_tests_passed_nor_on_their_disk() -> None:
    """And nothing is published that was not made."""
    needs = {job: body.get("needs") for job, body in workflow("release")["jobs"].items()}
    assert needs == {"test": None, "make": "test", "publish": "make"}
    targets = {j: [c.split()[1] for c in commands("release", j) if c[:5] == "make "] for j in needs}
    assert targets == {"test": ["test"], "make": ["release"], "publish": []}
