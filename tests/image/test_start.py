"""What a container says at its start when something is in the way, and what it becomes if not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.image import start
from rig.image.start_checks import problems
from rig.image.start_facts import (
    CACHE_VARIABLES,
    Folder,
    StartFacts,
    card_files,
    port_taken,
    read_folder,
)

CACHE = Folder("/cache", (1000, 1000), 0o755, True, False)
TMP = Folder("/tmp", (0, 0), 0o1777, True, False)
FACTS = StartFacts(
    uid=1000,
    gid=1000,
    flavour="cuda",
    cache=(CACHE,),
    temporary=TMP,
    driver=True,
    card_files=("/dev/nvidia0",),
    wanted_devices="all",
    host="0.0.0.0",
    port=8000,
    port_taken="",
)


def said(facts: StartFacts) -> str:
    found = problems(facts)
    assert len(found) == 1, found
    assert found[0].next_step
    return str(found[0])


def test_nothing_is_in_the_way() -> None:
    assert problems(FACTS) == []


def test_no_runtime() -> None:
    text = said(replace(FACTS, driver=False, card_files=()))
    assert "without the NVIDIA runtime" in text and "--gpus all" in text


def test_no_cards() -> None:
    assert "the container has no cards" in said(replace(FACTS, card_files=()))


@pytest.mark.parametrize("hidden", ["void", "none"])
def test_cards_that_are_hidden(hidden: str) -> None:
    text = said(replace(FACTS, driver=False, card_files=(), wanted_devices=hidden))
    assert f"NVIDIA_VISIBLE_DEVICES={hidden} hides them" in text


def test_the_cpu_image_wants_no_cards() -> None:
    assert problems(replace(FACTS, flavour="cpu", driver=False, card_files=())) == []


def test_a_read_only_root() -> None:
    text = said(replace(FACTS, temporary=replace(TMP, writable=False, read_only=True)))
    assert "read-only" in text and "--tmpfs /tmp:exec,mode=1777" in text


def test_a_tmp_that_may_not_be_written() -> None:
    text = said(replace(FACTS, temporary=Folder("/tmp", (0, 0), 0o755, False, False)))
    assert "user 1000 may not write to /tmp" in text


def test_a_cache_of_another_user() -> None:
    text = said(replace(FACTS, cache=(Folder("/cache", (0, 0), 0o755, False, False),)))
    assert "the cache volume belongs to user 0, and the container runs as user 1000" in text
    assert "sudo chown -R 1000:1000" in text and "--user 0:0" in text


def test_a_folder_in_the_cache_that_root_made() -> None:
    folder = Folder("/cache/huggingface", (0, 0), 0o755, False, False)
    assert "the cache folder belongs to user 0" in said(replace(FACTS, cache=(CACHE, folder)))


def test_a_cache_that_is_read_only_or_missing() -> None:
    read_only = replace(CACHE, writable=False, read_only=True)
    assert "read-only file system" in said(replace(FACTS, cache=(read_only,)))
    missing = Folder("/cache", None, 0, False, False)
    assert "is not there" in said(replace(FACTS, cache=(missing,)))


def test_a_port_that_is_taken() -> None:
    text = said(replace(FACTS, port_taken="Address already in use"))
    assert "port 8000 is taken" in text and "RIG_LISTEN_PORT" in text
    assert "cannot listen on 0.0.0.0:80: Perm" in said(
        replace(FACTS, port=80, port_taken="Permission denied")
    )


def test_everything_is_said_at_once() -> None:
    bad = replace(FACTS, card_files=(), port_taken="Address already in use")
    assert len(problems(bad)) == 2


def test_a_port_is_tried_for_real() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert port_taken("127.0.0.1", port) == "Address already in use"
    assert port_taken("127.0.0.1", port) == ""
    assert port_taken("no such host", port)


def test_folders_and_cards_are_looked_at_for_real(tmp_path: Path) -> None:
    folder = read_folder(tmp_path)
    assert folder.writable and folder.owner == (os.getuid(), tmp_path.stat().st_gid)
    assert read_folder(tmp_path / "none").owner is None
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "dxg"):
        (tmp_path / name).touch()
    assert [Path(p).name for p in card_files(tmp_path)] == ["dxg", "nvidia0", "nvidia11"]


def test_the_words_of_a_server() -> None:
    words = start.serve_arguments(["M", "--seed", "1"], {"RIG_NAME": "2x3090", "RIG_HOST": "::"})
    assert words == [
        *("--rig", "2x3090", "M", "--seed", "1", "--host", "::", "--port", "8000"),
    ]


def test_the_words_from_the_environment() -> None:
    environment = {
        "RIG_MODEL": "/models/m",
        "RIG_ARGUMENTS": "--a '{\"b\": 1}'",
        "RIG_IMAGE_FLAVOUR": "cpu",
        "RIG_LISTEN_PORT": "9000",
    }
    words = start.serve_arguments([], environment)
    assert words == [
        *("--rehearse", "--rig", "auto", "/models/m", "--a", '{"b": 1}', "--host", "127.0.0.1"),
        *("--port", "9000"),
    ]
    assert start.host_of(words) == "127.0.0.1"


def test_loopback_unless_told() -> None:
    assert start.host_of(start.serve_arguments(["M"], {})) == "127.0.0.1"
    assert start.host_of(["--host=0.0.0.0"]) == "0.0.0.0"


def test_a_user_s_rig_wins() -> None:
    words = start.serve_arguments(["--rig=my.toml", "M"], {"RIG_NAME": "4x3090"})
    assert "4x3090" not in words


@pytest.mark.parametrize(
    ("asked", "environment", "complaint"),
    [
        ([], {}, "no model was named"),
        ([], {"RIG_ARGUMENTS": "--seed 1"}, "no model was named"),
        (["M", "--port", "9"], {}, "health check"),
        (["M", "--port=9"], {}, "RIG_LISTEN_PORT"),
        (["M", "--host", "::"], {}, "RIG_HOST"),
        ([], {"RIG_MODEL": "M", "RIG_ARGUMENTS": "--api_key k"}, "VLLM_API_KEY_FILE"),
        (["M", "--api-k=k"], {}, "VLLM_API_KEY_FILE"),
        (["M", "--ssl-keyfile", "f"], {}, "proxy"),
        (["M"], {"RIG_LISTEN_PORT": "x"}, "RIG_LISTEN_PORT"),
        (["M"], {"RIG_LISTEN_PORT": "70000"}, "RIG_LISTEN_PORT"),
    ],
)
def test_words_that_make_no_sense(
    asked: list[str], environment: dict[str, str], complaint: str
) -> None:
    with pytest.raises(RigError, match=complaint):
        start.serve_arguments(asked, environment)


def test_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_x\n")
    filled, found = start.with_secrets(
        {"HF_TOKEN_FILE": str(tmp_path / "token"), "VLLM_API_KEY_FILE": "/dev/null"}
    )
    assert found == []
    assert filled["HF_TOKEN"] == "hf_x"
    assert "VLLM_API_KEY" not in filled


def test_secrets_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff")
    filled, found = start.with_secrets(
        {"HF_TOKEN_FILE": str(tmp_path / "none"), "VLLM_API_KEY_FILE": str(tmp_path / "key")}
    )
    assert not set(start.SECRETS) & filled.keys()
    token, key = map(str, found)
    assert "HF_TOKEN cannot be read" in token and "RIG_UID" in token
    assert "VLLM_API_KEY cannot be read" in key and "not text" in key


def entry(docker: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(docker / "entrypoint.sh"), *words],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_image_for_another_processor(docker: Path) -> None:
    done = entry(docker, RIG_IMAGE_ARCH="sparc")
    assert done.returncode == 3
    assert "this image is for sparc, this machine is " in done.stderr
    assert "next:" in done.stderr


def test_a_python_that_does_not_run(docker: Path) -> None:
    done = entry(docker, RIG_IMAGE_ARCH=os.uname().machine)  # there is no /opt/vllm-rig here
    assert done.returncode == 3
    assert "own Python does not run" in done.stderr


def begun(checkout: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`rig.image.start` as the entry point runs it."""
    path = {"PYTHONPATH": str(checkout / "scripts"), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-P", "-m", "rig.image.start", *words],
        env={**path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_start_with_everything_in_the_way(docker: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        done = begun(
            docker.parent,
            "M",
            RIG_IMAGE_FLAVOUR="cuda",
            RIG_LISTEN_PORT=port,
            HF_TOKEN_FILE="/none",
        )
    assert done.returncode == start.UNFIT
    assert "the secret HF_TOKEN cannot be read" in done.stderr
    assert f"port {port} is taken" in done.stderr
    assert "NVIDIA runtime" in done.stderr or "no cards" in done.stderr


def test_no_model_is_wrong_usage(docker: Path) -> None:
    done = begun(docker.parent)
    assert done.returncode == start.USAGE
    assert "no model was named" in done.stderr
    done = begun(docker.parent, HF_TOKEN_FILE="/none")
    assert done.returncode == start.USAGE
    assert "no model was named" in done.stderr and "HF_TOKEN" in done.stderr


def test_a_command_of_rig_is_run(docker: Path, tmp_path: Path) -> None:
    done = begun(docker.parent, "pins", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "0.33.0" in done.stdout


def test_health_asks_the_server_of_this_container(docker: Path, tmp_path: Path) -> None:
    with socket.socket() as holder:  # bound, not listening: refused
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        done = begun(docker.parent, "health", RIG_LISTEN_PORT=str(port), HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr


def test_help_needs_no_cards(docker: Path, tmp_path: Path) -> None:
    done = begun(docker.parent, "--help", RIG_IMAGE_FLAVOUR="cuda", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "usage: serve" in done.stdout


def test_arguments_with_an_open_quote() -> None:
    given = {"RIG_MODEL": "m", "RIG_ARGUMENTS": "--served-model-name 'a"}
    with pytest.raises(RigError, match="RIG_ARGUMENTS") as caught:
        start.serve_arguments([], given)
    assert caught.value.next_step


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root can")
def test_a_cache_that_its_user_may_not_even_look_into(tmp_path: Path) -> None:
    """The volume is a folder of root's, mode 0700: its folders cannot be asked for."""
    code = (
        "import os, sys; from pathlib import Path; from rig.image.start_facts import cache_folders;"
        "os.setuid(65534); cache = Path('closed');"
        "print([f.writable for f in cache_folders({'HOME': 'closed/home'}, cache)])"
    )
    (tmp_path / "closed" / "home").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    tmp_path.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        # In the folder already: pytest's own folders above it are closed to others too.
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[False]\n"), done.stderr


def test_a_cache_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").write_text("a file in its place")
    for name in CACHE_VARIABLES:
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr(start, "problems", lambda facts: [])
    assert start.main(["some/model"]) == start.UNFIT
    assert str(tmp_path / "home") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
        ("192.0.2.7", "192.0.2.7"),
        ("::1", "[::1]"),
    ],
)
def test_health_asks_where_the_server_listens(host: str, asked: str) -> None:
    assert start._command(["health"], {"RIG_HOST": host}) == ["health", f"http://{asked}:8000"]
