"""The compose file: three profiles, closed by default, every knob told in .env.example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig.image.start import SECRETS, serve_arguments

PROFILES = {"1x": 1, "2x": 2, "4x": 4}
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<default>[^}]*))?\}")


def defaults(text: str) -> dict[str, str | None]:
    """Variable -> default; None where it must be set."""
    found = {}
    for match in _VARIABLE.finditer(text):
        found[match["name"]] = match["default"] if match["how"] == "-" else None
    return found


def filled(text: str, values: dict[str, str]) -> Any:
    """The file as compose reads it: parsed first, then each string is filled in."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        return values[name] if name in values else match["default"] or ""

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: fill(one) for key, one in node.items()}
        if isinstance(node, list):
            return [fill(one) for one in node]
        return _VARIABLE.sub(value, node) if isinstance(node, str) else node

    return fill(yaml.safe_load(text))


@pytest.fixture(scope="module")
def text(docker: Path) -> str:
    return (docker / "compose.yaml").read_text()


@pytest.fixture(scope="module")
def services(text: str) -> dict[str, dict[str, Any]]:
    composed = filled(text, {"RIG_IMAGE": "vllm-rig:x", "RIG_MODEL": "M"})
    found: dict[str, dict[str, Any]] = composed["services"]
    return found


def test_each_profile_has_its_cards(services: dict[str, dict[str, Any]]) -> None:
    assert {s["profiles"][0]: s for s in services.values()}.keys() == PROFILES.keys()
    for service in services.values():
        (profile,) = service["profiles"]
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": PROFILES[profile], "capabilities": ["gpu"]}
        assert service["environment"]["RIG_NAME"] == f"{profile}3090"


def test_the_rigs_exist(services: dict[str, dict[str, Any]], docker: Path) -> None:
    for service in services.values():
        name = service["environment"]["RIG_NAME"]
        assert (docker.parent / "scripts" / "rigs" / f"{name}.toml").is_file()


def test_it_is_closed(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        assert service["ports"] == ["127.0.0.1:8000:8000"]
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["user"] == "1000:1000"
        assert "no-new-privileges:true" in service["security_opt"]
        assert "privileged" not in service and "network_mode" not in service


def test_memory_for_the_ranks(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        assert service["ulimits"]["memlock"] == {"soft": -1, "hard": -1}
        assert (service["ipc"], service["shm_size"]) == ("private", "16g")
        assert service["tmpfs"][0].startswith("/tmp:exec,mode=1777")
        assert "cache:/cache" in service["volumes"]


def test_secrets_are_files(text: str, services: dict[str, dict[str, Any]]) -> None:
    composed = filled(text, {"RIG_IMAGE": "x", "RIG_MODEL": "M"})
    assert composed["secrets"] == {n: {"file": "/dev/null"} for n in ("hf_token", "api_key")}
    for service in services.values():
        files = {n: service["environment"][f"{n}_FILE"] for n in SECRETS}
        assert {Path(f).name for f in files.values()} == set(service["secrets"])
        assert not set(SECRETS) & service["environment"].keys()


def test_the_image_understands_its_environment(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        words = serve_arguments([], service["environment"])
        assert words[-4:] == ["--host", "0.0.0.0", "--port", "8000"]
        assert "M" in words


def test_every_knob_is_told_with_its_default(text: str, docker: Path) -> None:
    example = (docker / ".env.example").read_text()
    told = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", example, re.MULTILINE))
    known = defaults(text)
    assert told.keys() == known.keys()
    must = {name for name, default in known.items() if default is None}
    assert must == set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    examples = {"RIG_ARGUMENTS", "RIG_NAME", "RIG_HF_TOKEN_FILE", "RIG_API_KEY_FILE"}
    assert {n: told[n] for n in known.keys() - must - examples} == {
        n: known[n] for n in known.keys() - must - examples
    }


def test_the_grace_is_longer_than_a_stop_takes(services: dict[str, dict[str, Any]]) -> None:
    assert {service["stop_grace_period"] for service in services.values()} == {"90s"}
